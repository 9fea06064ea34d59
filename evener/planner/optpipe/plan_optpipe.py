"""The OptPipe planner: offload, recomputation, split backward and order together, under a cap.

OptPipe (arXiv 2510.05186) starts from AdaOffload and solves a mixed integer program.  Here the
start is AdaOffload's on top of every registered schedule, and what follows is annealing over order,
what becomes of every cell, and when it comes back; the judge is compiled.  What is returned was
simulated with all messages and fits into memory; it is never slower than the best start.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from evener.errors import PlanInfeasible
from evener.planner.bound import lower_bound
from evener.planner.bounds.instance import Instance
from evener.planner.candidate import Candidate, Evaluated
from evener.planner.fastest import fastest, require_layer_each
from evener.planner.optpipe.cool import cool, cooling_of
from evener.planner.optpipe.starts import Start, starts
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult, Status
from evener.planner.stop import StoppingCriterion

_NUM_TRIED = 12
"""Starts that are simulated with all messages."""

_ROUNDS = (8, 4, 2, 1)
"""How many starts are annealed, and how many of these go on; each round takes as long."""

_NUM_ORDERS_PER_PLACE = 2000
"""Small problems are searched through long before the effort is spent."""

_PARTS = 1000


@dataclass(frozen=True)
class OptPipePlanner:
    """A planner that plays so many places of lists, in all orders that it judges.

    The number stands for what one core of 2026 does in about a minute.
    """

    num_actions: int = 200_000_000

    def __call__(
        self, problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
    ) -> PlanResult:
        """The best plan of one pipeline over all devices in which every stage is held once.

        A job that recomputes in full gets plans that recompute every cell; ``recompute = "auto"``
        and ``offload = true`` leave that to the planner.

        Raises PlanInfeasible if there are more workers than layers, or if no start of the search
        fits into memory.
        """
        require_layer_each(problem, "OptPipe's search is impossible")
        start_s, job = time.monotonic(), problem.job
        bound_ns = lower_bound(*_instances(problem)).step_ns
        may = (job.recompute != "full", job.offload, job.recompute != "none")
        hunt = _Hunt(_written_out(problem), may, stop, seed, progress, bound_ns)
        hunt.begin()
        if not hunt.found:
            raise PlanInfeasible("no plan fits", [_too_large(problem)])
        pool = hunt.fitting
        for count in _ROUNDS:
            pool = sorted(pool, key=lambda each: each.step_ns)[:count]
            part = self.num_actions // len(_ROUNDS) // len(pool)
            pool = [hunt.improve(start, part) for start in pool]
        candidate, best = hunt.best()
        return candidate.result(
            best,
            lower_bound_ns=bound_ns,
            status=Status.of_search(best.step_ns, bound_ns, stopped=hunt.stopped),
            runtime_s=time.monotonic() - start_s,
            stats={"simulated": hunt.num_judged, "starts": hunt.num_starts},
        )


plan_optpipe = OptPipePlanner()


@dataclass
class _Hunt:
    """One search. may: keep, offload, recompute.

    fitting: where it may go on from; found: what fits.
    """

    problem: Problem
    may: tuple[bool, bool, bool]
    stop: StoppingCriterion
    seed: int
    progress: Progress
    bound_ns: int
    fitting: list[Start] = field(default_factory=list)
    found: list[tuple[Candidate, Evaluated]] = field(default_factory=list)
    num_judged: int = 0
    num_starts: int = 0
    num_cooled: int = 0
    stopped: bool = False

    def begin(self) -> None:
        """Simulate the most promising starts."""
        made = [
            start
            for size in self.problem.microbatch_sizes
            for start in starts(self.problem, microbatch_size=size, may=self.may)
        ]
        self.num_starts = len(made)
        for start in sorted(made, key=lambda each: each.step_ns):
            if len(self.fitting) >= _NUM_TRIED or self._told(0.0):
                break
            self._try(start)

    def _try(self, start: Start | None) -> None:
        for _ in range(4):
            if start is None:
                return
            self.num_judged += 1
            evaluated = start.judged(start.orders)
            if evaluated is None:
                return
            if not evaluated.over:
                self.fitting.append(start)
                self.found.append((start.candidate, evaluated))
                return
            start = start.with_more_reserve(evaluated)

    def improve(self, start: Start, num_actions: int) -> Start:
        """Where annealing gets from a start; back if that holds too much.

        Nowhere if the search was stopped or there is nothing to gain.
        """
        if self.stopped or self.best()[1].step_ns <= self.bound_ns:
            return start
        self.num_cooled += 1
        num_places = int(start.orders.length.sum())
        num_orders = max(1, min(num_actions // num_places, _NUM_ORDERS_PER_PLACE * num_places))
        cooling = cooling_of(num_orders, (self.seed, self.num_cooled))
        done = 0

        def judged(number: int) -> bool:
            nonlocal done
            done += number
            self.num_judged += number
            return self._told((self.num_cooled - 1 + done / num_orders) / sum(_ROUNDS))

        orders, step_ns = cool(start.world, start.orders, start.step_ns, cooling, judged)
        evaluated = start.judged(orders)
        if evaluated is None:
            return start
        if not evaluated.over:
            self.found.append((start.candidate, evaluated))
            return replace(start, orders=orders, step_ns=step_ns)
        return start.with_more_reserve(evaluated) or start

    def best(self) -> tuple[Candidate, Evaluated]:
        """The fastest of what fits."""
        return fastest(self.found)

    def _told(self, share: float) -> bool:
        """Say how far the search is; whether it is to end, never before there is an answer."""
        best_ns = min((evaluated.step_ns for _, evaluated in self.found), default=None)
        self.progress(min(_PARTS, int(_PARTS * share)), _PARTS, best_ns)
        self.stopped = bool(self.found) and (self.stopped or self.stop(best_ns))
        return self.stopped


def _instances(problem: Problem) -> Iterator[Instance]:
    """What the lower bounds need to know: memory limits nothing where cells may leave it."""
    for size in problem.microbatch_sizes:
        yield problem.instance(
            size,
            num_workers=len(problem.cluster.devices),
            num_microbatches=problem.job.num_sequences // size,
            offloads=problem.job.offload,
        )


def _written_out(problem: Problem) -> Problem:
    """The same problem with no recomputation hidden inside backwards: here it is an action."""
    if problem.job.recompute != "full":
        return problem
    return replace(problem, job=problem.job.model_copy(update={"recompute": "auto"}))


def _too_large(problem: Problem) -> str:
    job = problem.job
    more = [
        way
        for way, is_taken in (
            ("offload = true", job.offload),
            ('recompute = "auto"', job.recompute != "none"),
        )
        if not is_taken
    ]
    ways = [*more, "more devices", "a smaller microbatch"]
    return (
        f"no registered schedule over all {len(problem.cluster.devices)} devices can be brought "
        f"under the memory caps; ways out: {', '.join(ways[:-1])} or {ways[-1]}"
    )
