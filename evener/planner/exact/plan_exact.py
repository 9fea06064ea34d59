"""The exact planner: small problems solved by CP-SAT, with the proof."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from evener.errors import PlanInfeasible, UsageError
from evener.planner.bound import lower_bound
from evener.planner.candidate import Candidate, Evaluated
from evener.planner.exact.whole_search import fastest_below, longest_ns
from evener.planner.joint.orders import partition_of, schedule_of
from evener.planner.joint.shapes import chains
from evener.planner.joint.world import lower_caps, world_of
from evener.planner.problem import Problem, Progress
from evener.planner.registered import registered_plans
from evener.planner.result import PlanResult, Status
from evener.planner.stop import StoppingCriterion

MOST_PLACED_ACTIONS = 1200
"""Of the largest pipeline; beyond that a proof takes more than minutes."""

_TINY = 150
"""So many placed actions are solved in a second or two."""

_NUM_TRIES = 4
"""Solves of one shape if the simulator holds more than the model."""


def plan_exact(
    problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
) -> PlanResult:
    """The fastest of all plans that hold every stage once, proven unless it is stopped.

    Raises UsageError if the problem is too large, PlanInfeasible if nothing fits into memory.
    """
    del seed  # the optimum is one, however it is found
    shapes = list(chains(problem))
    largest = max(shapes, key=_size)
    if _size(largest) > MOST_PLACED_ACTIONS:
        raise UsageError(_too_large(largest))
    return prove(problem, shapes, stop=stop, progress=progress)


def is_tiny(shapes: Sequence[Candidate]) -> bool:
    """Whether it takes no time worth speaking of to ``prove`` them all."""
    return max(map(_size, shapes)) <= _TINY


def prove(
    problem: Problem,
    shapes: Sequence[Candidate],
    *,
    stop: StoppingCriterion,
    progress: Progress,
) -> PlanResult:
    """The fastest plan of these shapes, as long as ``stop`` does not end it.

    Raises PlanInfeasible if nothing fits into memory.
    """
    start_s = time.monotonic()
    proof = _Proof(problem, stop, progress)
    ranked = sorted(shapes, key=lambda each: lower_bound(each.instance).step_ns)
    for number, candidate in enumerate(ranked):
        proof.solve(candidate)
        proof.tell(number + 1, len(ranked))
    if proof.best is None:
        raise PlanInfeasible("no plan fits", [_NO_ROOM])
    candidate, best = proof.best
    bound_ns = min(*proof.least_ns, best.step_ns)
    return candidate.result(
        best,
        lower_bound_ns=bound_ns,
        status=Status.of_search(best.step_ns, bound_ns, stopped=proof.stopped),
        runtime_s=time.monotonic() - start_s,
        stats={"simulated": proof.num_judged, "shapes": len(shapes)},
    )


@dataclass
class _Proof:
    """What is known of all shapes. least_ns: per shape, no plan of it is faster."""

    problem: Problem
    stop: StoppingCriterion
    progress: Progress
    least_ns: list[int] = field(default_factory=list)
    best: tuple[Candidate, Evaluated] | None = None
    stopped: bool = False
    num_judged: int = 0

    def solve(self, candidate: Candidate) -> None:
        """Find its fastest plan, if that is faster than the best one."""
        for plan in registered_plans(
            self.problem,
            microbatch_size=candidate.shape.microbatch_size,
            replicas=candidate.shape.replicas,
        ):
            self._keep(candidate, plan)
            self.num_judged += 1
        world, at_least_ns = world_of(candidate), lower_bound(candidate.instance).step_ns
        for number in range(_NUM_TRIES):
            limit_ns = longest_ns(world) + 1 if self.best is None else self.best[1].step_ns
            found = fastest_below(world, limit_ns, at_least_ns=at_least_ns, stop=self._stop)
            if number == 0:
                # The model repeats forwards inside backwards, a plan may begin sooner.
                repeats = self.problem.job.recompute == "full"
                self.least_ns.append(at_least_ns if repeats else found.least_ns)
            if found.orders is None:
                return
            schedule = schedule_of(found.orders, candidate.shape.schedule.num_microbatches)
            evaluated = candidate.judge(partition_of(found.orders), schedule)
            self.num_judged += 1
            if not evaluated.over:
                self._keep(candidate, evaluated)
                return
            lower_caps(world, candidate, evaluated)

    def tell(self, done: int, total: int) -> None:
        """Let the caller know how far it is."""
        self.progress(done, total, None if self.best is None else self.best[1].step_ns)

    def _keep(self, candidate: Candidate, plan: Evaluated) -> None:
        if self.best is None or plan.step_ns < self.best[1].step_ns:
            self.best = candidate, plan

    def _stop(self) -> bool:
        """Not before there is an answer."""
        if self.best is not None and not self.stopped:
            self.stopped = self.stop(self.best[1].step_ns)
        return self.stopped


def _size(candidate: Candidate) -> int:
    """Forwards, input and weight gradients of all layers, on every worker."""
    sizes = candidate.shape.schedule
    return 3 * candidate.problem.num_layers * sizes.num_microbatches * sizes.num_workers


def _too_large(candidate: Candidate) -> str:
    sizes = candidate.shape.schedule
    return (
        f"the exact planner is for small problems: {candidate.problem.num_layers} layers, "
        f"{sizes.num_microbatches} microbatches and {sizes.num_workers} workers are "
        f"{_size(candidate):,} pairs of an action and a worker, and it takes at most "
        f"{MOST_PLACED_ACTIONS:,}; use --planner joint"
    )


_NO_ROOM = (
    "no placement of the layers on the workers keeps under their memory caps, in any order; use "
    "more devices, a smaller microbatch or recompute"
)
