"""The joint planner: partition, placement and schedule at once, after AdaPtis.

Guo et al., "AdaPtis" (arXiv 2509.23722), section 4, tunes the three in turn.  Here one annealing
moves boundaries, stages and what workers prefer together; see ``state`` and ``moves``.
"""

import time
from dataclasses import dataclass, field
from functools import partial

from evener.errors import PlanInfeasible
from evener.planner.bound import lower_bound
from evener.planner.candidate import Candidate, Evaluated
from evener.planner.exact.plan_exact import is_tiny, prove
from evener.planner.exact.windows import Effort, improve_orders
from evener.planner.fastest import fastest
from evener.planner.joint.orders import Orders, partition_of, schedule_of
from evener.planner.joint.search import Search
from evener.planner.joint.shapes import chains
from evener.planner.joint.starts import most_stages, starts, state_of
from evener.planner.joint.state import State
from evener.planner.joint.world import NEVER, World, lower_caps, world_of
from evener.planner.problem import Problem, Progress
from evener.planner.registered import registered_plans
from evener.planner.result import PlanResult, Status
from evener.planner.stop import StoppingCriterion

_PARTS = 1000

_NUM_TRIES = 4
"""Searches of one shape if memory is short, see ``_Hunt._keep``."""

_ORDERING = Effort(whole_s=4.0, window_s=0.5, num_sweeps=2, repeatable=True)
"""Of the last step under a cap."""

_NUM_PLANS_PER_ACTION = 8000
"""Small problems are searched through long before the effort is spent."""


@dataclass(frozen=True)
class JointPlanner:
    """A planner that schedules so many actions, in all plans that it judges.

    The number stands for what two cores of 2026 do in less than half a minute.
    one_pipeline: whether all devices form one pipeline; otherwise replicas are tried as well.
    """

    num_actions: int = 800_000_000
    one_pipeline: bool = False

    def __call__(
        self, problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
    ) -> PlanResult:
        """The best plan in which every stage is held once.

        Raises PlanInfeasible if no start of the search fits into memory.
        """
        start_s = time.monotonic()
        shapes = list(chains(problem, one_pipeline=self.one_pipeline))
        if is_tiny(shapes):
            return prove(problem, shapes, stop=stop, progress=progress)
        bound_ns = lower_bound(*(each.instance for each in shapes)).step_ns
        hunt = _Hunt(problem, stop, seed, progress, bound_ns)
        # Half of the effort decides between the shapes, if there are several.
        part = self.num_actions if len(shapes) == 1 else self.num_actions // 2 // len(shapes)
        for candidate in shapes:
            hunt.search(candidate, part)
        if not hunt.found:
            raise PlanInfeasible("no plan fits", [_TOO_LARGE])
        if len(shapes) > 1:
            hunt.search(hunt.best()[0], self.num_actions // 2)
        candidate, best = hunt.best()
        return candidate.result(
            best,
            lower_bound_ns=bound_ns,
            status=Status.of_search(best.step_ns, bound_ns, stopped=hunt.stopped),
            runtime_s=time.monotonic() - start_s,
            stats={"simulated": hunt.num_judged, "shapes": len(shapes)},
        )


plan_joint = JointPlanner()


@dataclass
class _Hunt:
    """All searches of one problem; found: what fits."""

    problem: Problem
    stop: StoppingCriterion
    seed: int
    progress: Progress
    bound_ns: int
    found: list[tuple[Candidate, Evaluated]] = field(default_factory=list)
    num_judged: int = 0
    stopped: bool = False

    def search(self, candidate: Candidate, num_actions: int) -> None:
        """Search one shape; nothing if the search was stopped and there is an answer."""
        if self.stopped and self.found:
            return
        world = world_of(candidate)
        begins = list(starts(world))
        for plan in registered_plans(
            self.problem,
            microbatch_size=candidate.shape.microbatch_size,
            replicas=candidate.shape.replicas,
        ):
            self.found.append((candidate, plan))
            self.num_judged += 1
            if len(plan.partition) <= most_stages(world):
                begins.append(_begin(world, plan))
            if self._told(0.0, plan.step_ns):
                break
        plan_actions = 3 * int(world.sizes[1]) * most_stages(world)
        enough = _NUM_PLANS_PER_ACTION * plan_actions**2
        for _ in range(_NUM_TRIES):
            search = Search(world, min(num_actions, enough), self.seed, self._told)
            lists = search.run(begins)
            self.num_judged += search.num_judged
            if lists is None:
                return
            if self._keep(candidate, world, self._ordered(world, *lists)) or self.stopped:
                return

    def best(self) -> tuple[Candidate, Evaluated]:
        """The fastest of what fits."""
        return fastest(self.found)

    def _ordered(self, world: World, lists: Orders, step_ns: int) -> Orders:
        """Windows of the lists ordered anew, which only pays where memory is short."""
        if world.cap_bytes.min() >= NEVER:
            return lists
        stop = partial(self._told, 1.0, step_ns)
        return improve_orders(world, lists, stop=stop, effort=_ORDERING).orders

    def _keep(self, candidate: Candidate, world: World, lists: Orders) -> bool:
        """Whether the simulator has room for it too; if not, the world gets less."""
        schedule = schedule_of(lists, candidate.shape.schedule.num_microbatches)
        evaluated = candidate.judge(partition_of(lists), schedule)
        if not evaluated.over:
            self.found.append((candidate, evaluated))
            return True
        lower_caps(world, candidate, evaluated)
        return False

    def _told(self, share: float, best_ns: int) -> bool:
        if self.found:
            best_ns = min(best_ns, self.best()[1].step_ns)
        self.progress(int(share * _PARTS), _PARTS, best_ns)
        self.stopped = self.stopped or best_ns <= self.bound_ns or self.stop(best_ns)
        return self.stopped


def _begin(world: World, plan: Evaluated) -> State:
    """A start with the partition and the placement of a plan."""
    workers = [group[0] for group in plan.schedule.workers_of_stage]
    return state_of(world, plan.partition, workers)


_TOO_LARGE = (
    "no worker has room for its layers and one microbatch under any start of the search; use "
    "more devices, a smaller microbatch or recompute"
)
