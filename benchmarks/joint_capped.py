"""Plans that hold no more than 1F1B: ``python -m benchmarks.joint_search --memory-cap 1.0``.

The cap of every worker is that share of what 1F1B with uniform stages holds on its fullest worker,
in layers x microbatches, from the forward until the last part of the backward.  OctoPipe's plans
hold twice to five times as much, so what is compared is what respects the cap: all schedules of the
library with one, two and four stages per worker, with uniform stages and the most even ones, and
AdaPtis' search as published.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.joint_baselines import FIXED, uniform_stages
from evener.errors import PlanInfeasible
from evener.planner.adaptis.plan_adaptis import plan_adaptis
from evener.planner.candidate import Candidate, Shape
from evener.planner.problem import Problem
from evener.planner.registered import registered_plans
from evener.planner.stop import NeverStop
from evener.schedules import SCHEDULES, ScheduleShape


@dataclass(frozen=True, order=True)
class Rival:
    """A plan that respects the cap."""

    step_ns: int
    name: str


def capped(problem: Problem, share: float) -> Problem:
    """The problem with that share of what 1F1B holds."""
    candidate = _candidate(problem, "one_f_one_b", 1)
    plan = candidate.evaluate(uniform_stages(problem, len(problem.cluster.devices)))
    cap_bytes = int(share * max(plan.outcome.peak_bytes))
    return replace(problem, job=problem.job.model_copy(update={"memory_cap_bytes": cap_bytes}))


def rival(problem: Problem) -> Rival | None:
    """The fastest of what others make of a problem with a cap."""
    return min(_rivals(problem), default=None)


def _rivals(problem: Problem) -> Iterator[Rival]:
    for plan in registered_plans(problem, microbatch_size=1, replicas=1):
        yield Rival(plan.step_ns, plan.schedule.name)
    for schedule, chunks in FIXED.values():
        candidate = _candidate(problem, schedule, chunks)
        plan = candidate.evaluate(uniform_stages(problem, candidate.shape.schedule.num_stages))
        if not plan.over:
            yield Rival(plan.step_ns, f"{schedule}, uniform")
    try:
        found = plan_adaptis(problem, stop=NeverStop(), seed=0, progress=lambda *_: None)
    except PlanInfeasible:
        return
    yield Rival(found.objective_ns, "adaptis")


def _candidate(problem: Problem, schedule: str, chunks: int) -> Candidate:
    sizes = ScheduleShape(len(problem.cluster.devices), problem.job.num_sequences, chunks)
    return Candidate(problem, Shape(SCHEDULES[schedule], sizes, 1, 1))
