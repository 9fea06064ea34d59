"""The actions of every kind of layer, timed in turn.

All probes are timed once before any is timed again, so that a drift of the machine meets all of
them alike, and in the order of a pipeline: all forwards, then the backwards from last to first.
So a backward finds caches as cold as in training.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TypeVar

from evener.profiler.options import FEWEST_ROUNDS, MeasureOptions
from evener.profiler.peers import Peers
from evener.profiler.probe import Probe
from evener.profiler.timing import Stopwatch

Result = TypeVar("Result")

TIMES = ("forward_ns", "backward_ns", "input_grad_ns", "weight_grad_ns", "recompute_ns")
"""What is timed, named as in ``LayerCost``."""


@dataclass(frozen=True)
class TimedProbe:
    """A probe and the nanoseconds that its actions took, by the names in ``TIMES``."""

    probe: Probe
    watch: Stopwatch
    samples: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in TIMES})

    def time(self, name: str, work: Callable[[], Result]) -> Result:
        """Do ``work`` and add how long it took to the samples of ``name``."""
        result, elapsed_ns = self.watch.time(work)
        self.samples[name].append(elapsed_ns)
        return result


def run_rounds(
    groups: Sequence[Sequence[TimedProbe]],
    options: MeasureOptions,
    peers: Peers,
    *,
    recomputes: bool,
) -> None:
    """Time all probes again and again, until the rounds or the budget are used up.

    groups: the probes of each microbatch size, in the order of the model.
    recomputes: whether the job keeps no activations between F and R.

    Peers go round by round together.  Each begins at another layer, since workers of a pipeline
    do different things at the same time.
    """
    total = options.warm_up_rounds + options.rounds
    peers.gather(None)
    end_s = monotonic() + options.budget_s
    for number in range(total):
        for group in groups:
            first = number + peers.worker * len(group) // peers.num_workers
            _run_round(list(_rotated(group, first)), recomputes=recomputes)
        options.progress(number + 1, total)
        if number + 1 == options.warm_up_rounds:
            _forget(groups)
        is_enough = number + 1 >= options.warm_up_rounds + FEWEST_ROUNDS and monotonic() > end_s
        if any(peers.gather(is_enough)):
            options.progress(total, total)
            break


def _rotated(group: Sequence[TimedProbe], first: int) -> Iterator[TimedProbe]:
    return (group[(first + offset) % len(group)] for offset in range(len(group)))


def _forget(groups: Sequence[Sequence[TimedProbe]]) -> None:
    for group in groups:
        for timed in group:
            for samples in timed.samples.values():
                samples.clear()


def _run_round(group: Sequence[TimedProbe], *, recomputes: bool) -> None:
    if recomputes:
        for timed in group:
            timed.time("forward_ns", timed.probe.forward_alone)
    name = "recompute_ns" if recomputes else "forward_ns"
    passes = [timed.time(name, partial(timed.probe.forward, split=False)) for timed in group]
    for timed in reversed(group):
        timed.time("backward_ns", partial(timed.probe.backward, passes.pop()))
    passes = [
        timed.time("recompute_ns", partial(timed.probe.forward, split=True)) for timed in group
    ]
    deferred = [
        timed.time("input_grad_ns", partial(timed.probe.input_backward, passes.pop()))
        for timed in reversed(group)
    ]
    for timed, left in zip(reversed(group), deferred, strict=True):
        timed.time("weight_grad_ns", partial(timed.probe.weight_backward, left))
