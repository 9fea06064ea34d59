"""The joint search beside AdaPtis' own tuner: ``python -m benchmarks.joint_search``.

For each row of ``tests/data/octopipe_baselines.csv`` (a model with measured layer times, workers,
microbatches, and time of a message), in ticks of 0.01 ms:

- what ``benchmarks.joint_baselines`` says of schedules with uniform stages, of the best of them
  with the most even stages, and of AdaPtis' search; OctoPipe's tuner in its public simulator;
- the plan of ``evener plan --planner joint``, the lower bound, the gap between them, and how often
  what 1F1B holds the plan holds (layers x microbatches, from the forward until the last part of the
  backward, on the fullest worker).

Rows are numbered from 0: ``--rows 0-9,20``.  ``--seconds`` is the limit of each row, ``--actions``
the effort; with the effort alone, the same seed gives the same plans.  ``--memory-cap 1.0`` gives
every worker what 1F1B holds, and compares with what respects that; see ``benchmarks.joint_capped``.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.joint_baselines import COLUMNS, baselines
from benchmarks.joint_capped import capped, rival
from benchmarks.joint_speed import plans_per_second
from benchmarks.octopipe_rows import TICK_NS, Row, chosen, problem_of, rows
from evener.planner.joint.plan_joint import JointPlanner
from evener.planner.problem import Problem
from evener.planner.result import PlanResult
from evener.planner.stop import MaxRuntime, NeverStop

_HEAD = "row model                 p  m  ms"
_TAIL = "  joint  bound   gap  held  stages    plans cpu s   s"


@dataclass(frozen=True)
class Effort:
    """seconds: of each row, if limited. actions: to schedule for each row."""

    seconds: float | None
    actions: int
    seed: int


@dataclass(frozen=True)
class Found:
    """A plan of ours, and the CPU time of its search."""

    result: PlanResult
    cpu_s: float

    @property
    def ticks(self) -> float:
        return self.result.objective_ns / TICK_NS

    @property
    def gap(self) -> float:
        return self.result.objective_ns / self.result.lower_bound_ns - 1

    def __str__(self) -> str:
        result = self.result
        return (
            f"{self.ticks:7.0f} {result.lower_bound_ns / TICK_NS:6.0f} {self.gap:5.1%}"
            f" {held(result):5.2f} {result.best.schedule.num_stages:7}"
            f" {result.stats['simulated']:8} {self.cpu_s:5.0f} {result.runtime_s:3.0f}"
        )


def found(problem: Problem, effort: Effort) -> Found:
    """Search a plan."""
    limit = NeverStop() if effort.seconds is None else MaxRuntime(effort.seconds)
    begin_s = time.process_time()
    result = JointPlanner(effort.actions, one_pipeline=True)(
        problem, stop=limit, seed=effort.seed, progress=lambda *_: None
    )
    return Found(result, time.process_time() - begin_s)


def held(result: PlanResult) -> float:
    """Peak of layers x microbatches, relative to 1F1B's: all layers' worth on the first worker."""
    predicted = result.best.predicted
    assert predicted is not None, "planners predict"
    return max(predicted.peak_bytes) / len(result.best.layer_names)


def head(number: int, row: Row) -> str:
    return f"{number:3} {row.model:20} {row.workers:2} {row.microbatches:2} {row.comm_ms:3}"


def table(numbers: list[int], effort: Effort) -> None:
    """Print the rows, with all the memory that plans like."""
    print(f"{_HEAD}{COLUMNS} octopipe{_TAIL} octopipe/joint")
    gaps, ratios, gains = [], [], []
    for number in numbers:
        row = list(rows())[number]
        problem = problem_of(row)
        others, ours = baselines(problem), found(problem, effort)
        gaps.append(ours.gap)
        ratios.append(row.octopipe / ours.ticks)
        gains.append(others.interleaved.uniform / ours.ticks)
        line = f"{head(number, row)}{others} {row.octopipe:8}{ours} {ratios[-1]:14.4f}"
        print(line, flush=True)
    print(
        f"gap to the bound: mean {np.mean(gaps):.2%}, worst {max(gaps):.2%}; OctoPipe's step over"
        f" ours: mean {np.mean(ratios):.3f}, worst {min(ratios):.4f}; interleaved 1F1B's over ours:"
        f" mean {np.mean(gains):.2f}, up to {max(gains):.2f}"
    )


def capped_table(numbers: list[int], effort: Effort, share: float) -> None:
    """Print the rows, with that share of the memory of 1F1B."""
    print(f"{_HEAD} best within the cap{_TAIL} best/joint")
    gaps, ratios = [], []
    for number in numbers:
        row = list(rows())[number]
        problem = capped(problem_of(row), share)
        other, ours = rival(problem), found(problem, effort)
        gaps.append(ours.gap)
        line, ratio = f"{'-':>30}", f"{'-':>11}"
        if other is not None:
            ratios.append(other.step_ns / ours.result.objective_ns)
            line = f"{other.name:>23}{other.step_ns / TICK_NS:7.0f}"
            ratio = f"{ratios[-1]:11.4f}"
        print(f"{head(number, row)}{line}{ours}{ratio}", flush=True)
    print(f"gap to the bound: mean {np.mean(gaps):.2%}, worst {max(gaps):.2%}")
    if ratios:
        mean, worst = np.mean(ratios), min(ratios)
        print(f"the best other step over ours: mean {mean:.3f}, worst {worst:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="0-39")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--actions", type=int, default=JointPlanner().num_actions)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory-cap", type=float, metavar="SHARE")
    options = parser.parse_args()
    numbers = chosen(options.rows, len(list(rows())))
    effort = Effort(options.seconds, options.actions, options.seed)
    print(plans_per_second())
    if options.memory_cap is None:
        table(numbers, effort)
    else:
        capped_table(numbers, effort, options.memory_cap)


if __name__ == "__main__":
    main()
