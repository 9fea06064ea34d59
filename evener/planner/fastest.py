"""The fastest of several plans, and planners that look at a fixed list of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evener.errors import PlanInfeasible
from evener.planner.candidate import Candidate, Evaluated, Shape
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult, Status
from evener.planner.stop import StoppingCriterion
from evener.schedules import SCHEDULES, ScheduleShape


def one_pipeline(problem: Problem, schedule: str, microbatch_size: int) -> Candidate:
    """All devices in one pipeline. schedule: a name in ``SCHEDULES``."""
    num_microbatches = problem.job.num_sequences // microbatch_size
    sizes = ScheduleShape(len(problem.cluster.devices), num_microbatches)
    return Candidate(problem, Shape(SCHEDULES[schedule], sizes, microbatch_size, 1))


def fastest(found: Sequence[tuple[Candidate, Evaluated]]) -> tuple[Candidate, Evaluated]:
    """Of equally fast ones the one whose fullest worker holds least."""
    return min(found, key=lambda pair: (pair[1].step_ns, max(pair[1].outcome.peak_bytes)))


def require_layer_each(problem: Problem, refusal: str) -> None:
    """Raise PlanInfeasible if one pipeline over all devices has more workers than layers."""
    num_devices, num_layers = len(problem.cluster.devices), problem.num_layers
    if num_devices > num_layers:
        raise PlanInfeasible(refusal, [_too_many_workers(num_devices, num_layers)])


Trial: TypeAlias = tuple[Candidate, Callable[[], Evaluated | None]]
"""A candidate, and what simulates one plan of it; None if memory caps leave no order."""


@dataclass(frozen=True)
class Search:
    """How a list is gone through.

    refusal: what to say if none fits. start_s: when it began, by ``time.monotonic``.
    bound_ns: no plan of the searched kind is faster.
    """

    refusal: str
    start_s: float
    bound_ns: int
    stop: StoppingCriterion
    progress: Progress

    def fastest(self, trials: Sequence[Trial]) -> PlanResult:
        """Simulate one after the other; of equally fast ones the first that fits into memory.

        Raises PlanInfeasible if none fits: what is short in the first.
        """
        best: tuple[Candidate, Evaluated] | None = None
        over: tuple[str, ...] = ()
        num_tried, stopped = 0, False
        for candidate, evaluate in trials:
            stopped = best is not None and self.stop(best[1].step_ns)
            if stopped:
                break
            found = evaluate()
            num_tried += 1
            if found is not None and found.over:
                over = over or found.over
            elif found is not None and (best is None or found.step_ns < best[1].step_ns):
                best = candidate, found
            self.progress(num_tried, len(trials), None if best is None else best[1].step_ns)
        if best is None:
            raise PlanInfeasible(self.refusal, over or [_NO_ORDER])
        candidate, found = best
        return candidate.result(
            found,
            lower_bound_ns=self.bound_ns,
            status=Status.of_search(found.step_ns, self.bound_ns, stopped=stopped),
            runtime_s=time.monotonic() - self.start_s,
            stats={"simulated": num_tried},
        )


_NO_ORDER = (
    "no worker has room for its layers and one microbatch of each of its stages; use more "
    "devices, a smaller microbatch or recompute"
)


def _too_many_workers(num_devices: int, num_layers: int) -> str:
    return (
        f"the cluster has {num_devices} devices, but the model has {num_layers} layers, and every "
        "worker needs one; use fewer devices or the planner joint"
    )
