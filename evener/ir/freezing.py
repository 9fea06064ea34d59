"""Freezing: which share of a stage's parameters each microbatch leaves out of its backward."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.units import too_many_digits

WHOLE_PPM = 1_000_000
"""The share that is all parameters; shares are integers, in parts per million."""

FREEZABLE_KINDS = frozenset({Kind.B, Kind.W})
"""What gets shorter by freezing: the actions that make gradients of parameters."""

Cell: TypeAlias = tuple[int, int]
"""(stage, microbatch)."""


@dataclass(frozen=True)
class Freezing:
    """Shares of parameters without a gradient, by stage and microbatch of the step.

    share_ppm: per stage, one share per microbatch (of all replicas, in order).

    Which parameters make up a share, the executor draws anew for every step.  The others' gradients
    are what they are without freezing, and so are the gradients of the inputs.
    """

    share_ppm: tuple[tuple[int, ...], ...]

    @property
    def num_stages(self) -> int:
        return len(self.share_ppm)

    @property
    def mean_ppm(self) -> int:
        """The mean over all stages and microbatches, rounded to the nearest."""
        shares = [share for row in self.share_ppm for share in row]
        return (2 * sum(shares) + len(shares)) // (2 * len(shares))

    def of(self, stage: int, microbatch: int) -> int:
        return self.share_ppm[stage][microbatch]

    def scaled(self, numerator: int, denominator: int) -> "Freezing":
        """Every share times a fraction, rounded down."""
        return Freezing(
            tuple(
                tuple(share * numerator // denominator for share in row) for row in self.share_ppm
            )
        )

    @classmethod
    def uniform(cls, schedule: Schedule, share_ppm: int) -> "Freezing":
        """The same share everywhere."""
        row = (share_ppm,) * schedule.num_microbatches
        return cls((row,) * schedule.num_stages)

    def lines(self) -> list[str]:
        """One line per stage, its shares in parts per million."""
        return [" ".join(map(str, row)) for row in self.share_ppm]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> "Freezing":
        """What ``lines`` writes. Raises ValueError for anything but whole numbers."""
        rows = []
        for stage, line in enumerate(lines):
            words = line.split()
            wrong = [word for word in words if not (word.isascii() and word.isdigit())]
            if wrong:
                raise ValueError(_no_share(stage, wrong[0]))
            if long := too_many_digits(line):
                raise ValueError(f"stage {stage}: {long}")
            rows.append(tuple(map(int, words)))
        return cls(tuple(rows))


def freezing_violations(
    freezing: Freezing, *, num_stages: int, num_microbatches: int, max_share_ppm: int
) -> Iterator[str]:
    """All that is wrong with a freezing for a step of that size, as sentences."""
    if freezing.num_stages != num_stages:
        yield _other_stages(freezing.num_stages, num_stages)
    for stage, shares in enumerate(freezing.share_ppm):
        if len(shares) != num_microbatches:
            yield _other_microbatches(stage, len(shares), num_microbatches)
        for microbatch, share in enumerate(shares):
            if share > WHOLE_PPM:
                yield _too_much(stage, microbatch, share)
        if sum(shares) > max_share_ppm * len(shares):
            yield _over_cap(stage, sum(shares) // len(shares), max_share_ppm)


def _no_share(stage: int, word: str) -> str:
    return f"stage {stage}: {word!r} is no share; give whole numbers, in parts per million"


def _other_stages(given: int, wanted: int) -> str:
    return f"has {given} lines, but the schedule has {wanted} stages; give one line per stage"


def _other_microbatches(stage: int, given: int, wanted: int) -> str:
    return (
        f"stage {stage} has {given} shares, but the step has {wanted} microbatches; give one each"
    )


def _too_much(stage: int, microbatch: int, share: int) -> str:
    return (
        f"stage {stage} freezes {share} parts per million of microbatch {microbatch}; "
        f"{WHOLE_PPM} is everything"
    )


def _over_cap(stage: int, mean_ppm: int, max_ppm: int) -> str:
    return (
        f"stage {stage} freezes {mean_ppm} parts per million on average, but the job allows "
        f"{max_ppm}; freeze less, or raise freeze.max_share"
    )
