"""AMDP: pipelines in two or four directions that never drain; weights are stale by one update.

"AMDP: Asynchronous Multi-Directional Pipeline Parallelism for Large-Scale Models Training", ICML
2026 (arXiv 2605.29664), and its public code for the order of eight workers in four directions,
which is generalised here to other numbers of workers and of directions.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule, Updates
from evener.schedules.entry import ScheduleEntry, no_closed_form, no_slices
from evener.schedules.refusals import refuse
from evener.schedules.shape import ScheduleShape

_PER_DIRECTION = 2
"""Microbatches that each pipeline starts in one round."""


def amdp_2(shape: ScheduleShape) -> Schedule:
    """Two pipelines: down the workers and up. See ``amdp_4``."""
    return _amdp(shape, directions=2)


def amdp_4(shape: ScheduleShape) -> Schedule:
    """Four pipelines: down the workers, up, and from the middle either way and round the end.

    In a round every pipeline starts two microbatches where it begins.  A worker runs the forwards
    of a round in the order in which they can come to it, its backwards in the order of the worker
    opposite; the last backward of a round waits until the next round has begun.  Then, after the
    first two forwards of an update, it steps with what the update before has summed.  So these two
    forwards read weights that are one update old, and their backwards new ones; nothing else is
    stale.

    Raises ScheduleError for a shape that the order does not fit.
    Source: arXiv 2605.29664 and its code; positions of the STEPs by its description.
    """
    return _amdp(shape, directions=4)


def _amdp(shape: ScheduleShape, *, directions: int) -> Schedule:
    refuse(_name(directions), shape, partial(_unsupported, directions=directions))
    routes = _routes(shape.num_workers, directions)
    workers = tuple(tuple(_actions(shape, routes, worker)) for worker in range(shape.num_workers))
    number = shape.num_updates
    updates = Updates(number, 1) if number > 1 else Updates()
    num_microbatches = shape.num_microbatches * number
    return Schedule(_name(directions), shape.num_stages, num_microbatches, workers, updates=updates)


def _name(directions: int) -> str:
    return f"amdp_{directions}"


def _routes(num_workers: int, directions: int) -> tuple[tuple[int, ...], ...]:
    """Per pipeline, the stage that each worker has in it."""
    down = tuple(range(num_workers))
    half = num_workers // 2
    from_middle = (*down[half:], *down[:half])
    inward = (*down[half - 1 :: -1], *down[: half - 1 : -1])
    return (down, inward, from_middle, down[::-1])[:: 1 if directions == 4 else 3]


def _actions(
    shape: ScheduleShape, routes: Sequence[tuple[int, ...]], worker: int
) -> Iterator[Action]:
    """Per round: F F, what is left of the last round, and the rest, the last backward excepted."""
    stages = [route[worker] for route in routes]
    opposite = [route[shape.num_workers - 1 - worker] for route in routes]
    ends_here = 0 in stages
    size = _PER_DIRECTION * len(routes)
    rounds_of_update = shape.num_microbatches // size
    left: list[Action] = []
    for number in range(rounds_of_update * shape.num_updates):
        forward = _row(Kind.F, _arrivals(stages), stages, number * size)
        backward = _row(Kind.B, _arrivals(opposite), stages, number * size)
        begin = forward[:2]
        yield from (*begin, *left) if ends_here else (*left, *begin)
        if left and number % rounds_of_update == 0:
            yield from _steps(stages, number // rounds_of_update - 1)
        if ends_here:
            yield from (*forward[2:-1], backward[0], forward[-1], *backward[1:-1])
        else:
            yield from (*forward[2:], *backward[:-1])
        left = backward[-1:]
    yield from left
    if shape.num_updates > 1:
        yield from _steps(stages, shape.num_updates - 1)


def _arrivals(stages: Sequence[int]) -> list[int]:
    """Microbatches of a round by when they can be at these stages; number r + d k is of route r."""
    number = range(_PER_DIRECTION * len(stages))
    return sorted(number, key=lambda m: (m // len(stages) + stages[m % len(stages)], m))


def _row(kind: Kind, order: Sequence[int], stages: Sequence[int], first: int) -> list[Action]:
    return [Action(stages[m % len(stages)], kind, first + m) for m in order]


def _steps(stages: Sequence[int], update: int) -> Iterator[Action]:
    for stage in sorted(set(stages)):
        yield Action(stage, Kind.STEP, update)


def _unsupported(shape: ScheduleShape, *, directions: int) -> str | None:
    size = _PER_DIRECTION * directions
    if shape.chunks_per_worker > 1:
        return (
            f"holds one stage of each direction per worker, but chunks_per_worker is "
            f"{shape.chunks_per_worker}; ask for 1"
        )
    if shape.num_workers % directions:
        return (
            f"has pipelines in {directions} directions, but {shape.num_workers} workers do not "
            f"divide by {directions}; ask for a multiple"
        )
    if shape.num_microbatches % size:
        return (
            f"starts 2 microbatches in each of {directions} directions per round, but "
            f"{shape.num_microbatches} microbatches per update do not divide by {size}; ask for a "
            "multiple"
        )
    return no_slices(shape)


def _peak_in_flight(shape: ScheduleShape, *, directions: int) -> tuple[int, ...]:
    """A round; where a pipeline begins, the first backward comes before the last forward."""
    size = _PER_DIRECTION * directions
    routes = _routes(shape.num_workers, directions)
    return tuple(size - (0 in stages) for stages in (zip(*routes, strict=True)))


def _entry(directions: int, generator: Callable[[ScheduleShape], Schedule]) -> ScheduleEntry:
    return ScheduleEntry(
        name=_name(directions),
        cite="AMDP, ICML 2026, arXiv 2605.29664, and its public code",
        generator=generator,
        peak_in_flight=partial(_peak_in_flight, directions=directions),
        makespan_ns=no_closed_form,
        stage_copies=directions,
        unsupported=partial(_unsupported, directions=directions),
        asynchronous=True,
    )


AMDP_2 = _entry(2, amdp_2)
AMDP_4 = _entry(4, amdp_4)
