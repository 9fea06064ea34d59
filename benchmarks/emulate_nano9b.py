"""Nemotron-nano-v2-9B on 4 workers, slept through: ``python -m benchmarks.emulate_nano9b``.

The measured layer times of ``tests/data/hybrid_profiles.toml`` times ``--scale`` (a tenth if left
out), in real processes on the wall clock (``evener emulate --clock wall``): 1F1B, interleaved
1F1B, ZB-H1 and ZB-V with uniform stages, the plan that AdaPtis (OctoPipe) publishes, what its
search finds here, and what the joint search finds in ``--seconds``.

What the processes take besides sleeping is measured first, on pipelines of equal stages: per
action, per message on the worker that sends or receives it, and on its way.  The planners know of
it, and the predictions contain it; ``bare`` is the prediction without.

Plans take turns, ``--rounds`` times; each time the first of ``--steps`` steps is not counted.  Ends
with exit code 1 if the median of a plan is more than 3 % from its prediction, or if the plans are
not in the predicted order (those whose predictions are within 1 % of each other may change places).
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np

from benchmarks.joint_baselines import FIXED, uniform_stages
from benchmarks.octopipe_rows import problem_of, rows
from evener.cost.table import KIND_INDEX, CostTable
from evener.executor.emulate import emulate
from evener.ir.action import Action, Kind
from evener.ir.passes import lower
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.planner.adaptis.plan_adaptis import plan_adaptis
from evener.planner.candidate import Candidate, Evaluated, Shape
from evener.planner.joint.plan_joint import JointPlanner
from evener.planner.plan_costs import costs_of_plan
from evener.planner.problem import Problem, tell_nobody
from evener.planner.result import Status
from evener.planner.stop import MaxRuntime, NeverStop
from evener.schedules import SCHEDULES, ScheduleShape
from evener.schedules.adaptis_greedy import ADAPTIS_GREEDY, adaptis_greedy
from evener.sim import simulate

ROW = 0
"""Of the forty problems: this model, 4 workers, 8 microbatches, messages that take no time."""

PUBLISHED_SIZES = (2, 2, 2, 2, 2, 2, 2, 3, 2, 3, 2, 3, 2, 3, 3, 2, 3, 3, 2, 2, 2, 3, 3, 1)
"""OctoPipe's plan: layers per stage, embedding and head left out."""

PUBLISHED_STAGES = (
    (0, 4, 8, 12, 16, 19, 20),
    (1, 5, 9, 13, 17, 21),
    (2, 6, 10, 14, 18, 22),
    (3, 7, 11, 15, 23),
)
"""And the stages of each worker."""

STOPWATCHES = (
    ScheduleShape(1, 24, 1),  # no message
    ScheduleShape(4, 1, 4),  # a chain of messages
    ScheduleShape(4, 24, 1),  # workers that are always busy
)
"""Pipelines from which the three overheads are told."""

OURS = "joint search"
UNDECIDED = 0.01
LIMIT = 0.03


@dataclass(frozen=True)
class Overheads:
    """What processes take besides sleeping, in nanoseconds.

    action: of every compute action. handling: of every message, on the sender and on the receiver.
    message: on the way.
    """

    action: int
    handling: int
    message: int

    def added(self, schedule: Schedule, costs: CostTable) -> CostTable:
        """Costs with the overheads of a lowered schedule."""
        time_ns = costs.time_ns.copy()
        for kind in (Kind.F, Kind.B, Kind.I, Kind.W, Kind.STEP):
            time_ns[:, :, KIND_INDEX[kind]] += self.action
        holders = [group[0] for group in schedule.workers_of_stage]
        for stage, (one, other) in enumerate(pairwise(holders)):
            if one != other:
                for end in (stage, stage + 1):
                    for kind in (Kind.F, Kind.B, Kind.I):
                        time_ns[:, end, KIND_INDEX[kind]] += self.handling
        apart = 1 - np.eye(costs.num_workers, dtype=np.int64)
        return replace(costs, time_ns=time_ns, latency_ns=costs.latency_ns + self.message * apart)

    @classmethod
    def measured(cls, action_ns: int) -> "Overheads":
        """Solved from what the three pipelines take longer than they sleep, ``action_ns`` each."""
        shares, longer_ns = [], []
        for shape in STOPWATCHES:
            schedule = lower(SCHEDULES["mini_stage_gpipe"](shape))
            costs = _equal(schedule, action_ns)
            slept_ns = simulate(schedule, costs).step_ns
            shares.append(
                [
                    simulate(schedule, cls(*row).added(schedule, costs)).step_ns - slept_ns
                    for row in np.eye(3, dtype=np.int64).tolist()
                ]
            )
            steps = emulate(schedule, costs, clock="wall", steps=16)[1:]
            longer_ns.append(median(each.step_ns for each in steps) - slept_ns)
        solved = np.linalg.solve(np.array(shares), np.array(longer_ns))
        return cls(*(max(0, round(each)) for each in solved.tolist()))


def _equal(schedule: Schedule, action_ns: int) -> CostTable:
    table = CostTable.uniform(schedule.num_workers, schedule.num_stages)
    time_ns = np.zeros_like(table.time_ns)
    time_ns[:, :, [KIND_INDEX[Kind.F], KIND_INDEX[Kind.B]]] = action_ns
    return replace(table, time_ns=time_ns)


def scaled(scale: float) -> Problem:
    """The row, with times of layers times ``scale``."""
    whole = problem_of(list(rows())[ROW])
    names = ("forward_ns", "backward_ns", "input_grad_ns", "weight_grad_ns", "recompute_ns")
    layers = tuple(
        cost.model_copy(update={name: round(scale * getattr(cost, name)) for name in names})
        for cost in whole.profile.layers
    )
    return replace(whole, profile=whole.profile.model_copy(update={"layers": layers}))


def with_overheads(problem: Problem, overheads: Overheads) -> Problem:
    """For the planners: an action is taken to handle two messages."""
    links = tuple(
        link.model_copy(update={"latency_ns": overheads.message}) for link in problem.profile.links
    )
    action_ns = overheads.action + 2 * overheads.handling
    profile = problem.profile.model_copy(update={"links": links, "overhead_ns": action_ns})
    return replace(problem, profile=profile)


def plans_of(problem: Problem, seconds: float) -> dict[str, Plan]:
    """By name. seconds: for the joint search."""
    plans = {name: _fixed(problem, *of) for name, of in FIXED.items()}
    plans["OctoPipe's plan"] = _published(problem)
    found = plan_adaptis(problem, stop=NeverStop(), seed=0, progress=tell_nobody)
    plans["AdaPtis' search"] = found.best
    joint = JointPlanner(one_pipeline=True)
    found = joint(problem, stop=MaxRuntime(seconds), seed=0, progress=tell_nobody)
    plans[OURS] = found.best
    return plans


def _fixed(problem: Problem, name: str, chunks: int) -> Plan:
    sizes = ScheduleShape(4, problem.job.num_sequences, chunks)
    candidate = Candidate(problem, Shape(SCHEDULES[name], sizes, 1, 1))
    return _plan(candidate, candidate.evaluate(uniform_stages(problem, sizes.num_stages)))


def _published(problem: Problem) -> Plan:
    sizes = ScheduleShape(4, problem.job.num_sequences)
    candidate = Candidate(problem, Shape(ADAPTIS_GREEDY, sizes, 1, 1))
    cuts = np.cumsum(PUBLISHED_SIZES)[:-1] + 1
    partition = tuple(pairwise([0, *cuts.tolist(), problem.num_layers]))
    held = tuple(tuple(Action(s, Kind.F, 0) for s in stages) for stages in PUBLISHED_STAGES)
    holders = Schedule("published", len(partition), sizes.num_microbatches, held)
    workers = [group[0] for group in holders.workers_of_stage]
    schedule = adaptis_greedy(sizes, candidate.times_on(holders, partition), workers=workers)
    return _plan(candidate, candidate.judge(partition, schedule))


def _plan(candidate: Candidate, found: Evaluated) -> Plan:
    result = candidate.result(
        found, lower_bound_ns=0, status=Status.SEARCHED, runtime_s=0.0, stats={}
    )
    return result.best


@dataclass(frozen=True)
class Run:
    """A plan's steps in nanoseconds: without overheads, with them, and measured."""

    bare_ns: int
    predicted_ns: int
    measured_ns: float

    @property
    def difference(self) -> float:
        return self.measured_ns / self.predicted_ns - 1


def run_all(
    plans: Mapping[str, Plan], bare: Problem, overheads: Overheads, *, rounds: int, steps: int
) -> dict[str, Run]:
    """Predict and emulate all plans, in turns."""
    worlds = {}
    for name, plan in plans.items():
        schedule = plan.lowered()
        worlds[name] = schedule, costs_of_plan(plan, bare.profile, bare.cluster)
    taken: dict[str, list[int]] = {name: [] for name in plans}
    for _ in range(rounds):
        for name, (schedule, costs) in worlds.items():
            timelines = emulate(schedule, costs, clock="wall", steps=steps)
            taken[name] += [each.step_ns for each in timelines[1:]]
    return {
        name: Run(
            simulate(schedule, costs).step_ns,
            simulate(schedule, overheads.added(schedule, costs)).step_ns,
            median(taken[name]),
        )
        for name, (schedule, costs) in worlds.items()
    }


def is_in_order(runs: Mapping[str, Run]) -> bool:
    """Whether no plan overtakes one that is predicted to be clearly faster."""
    return all(
        one.measured_ns < other.measured_ns
        for one in runs.values()
        for other in runs.values()
        if one.predicted_ns < (1 - UNDECIDED) * other.predicted_ns
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    overheads = Overheads.measured(round(1e7 * options.scale))
    print(
        f"besides sleeping: {overheads.action / 1e3:.0f} us per action, "
        f"{overheads.handling / 1e3:.0f} us per message on each end, "
        f"{overheads.message / 1e3:.0f} us on its way"
    )
    bare = scaled(options.scale)
    plans = plans_of(with_overheads(bare, overheads), options.seconds)
    runs = run_all(plans, bare, overheads, rounds=options.rounds, steps=options.steps)
    print(f"{'plan':16} stages    bare ms  predicted ms  measured ms  difference  1F1B over it")
    first = runs["1F1B"]
    for name, run in sorted(runs.items(), key=lambda item: item[1].predicted_ns):
        print(
            f"{name:16}{plans[name].schedule.num_stages:7}{run.bare_ns / 1e6:11.2f}"
            f"{run.predicted_ns / 1e6:14.2f}{run.measured_ns / 1e6:13.2f}{run.difference:+12.2%}"
            f"{first.measured_ns / run.measured_ns:13.3f}x"
        )
    worst = max((run.difference for run in runs.values()), key=abs)
    print(
        f"worst difference {worst:+.2%}; order of the plans: "
        f"{'as predicted' if is_in_order(runs) else 'NOT as predicted'}"
    )
    return 0 if abs(worst) <= LIMIT and is_in_order(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
