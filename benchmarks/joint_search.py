"""The joint search beside AdaPtis' own tuner: ``python -m benchmarks.joint_search``.

For each row of ``tests/data/octopipe_baselines.csv`` (a model with measured layer times, workers,
microbatches, and time of a message), in ticks of 0.01 ms:

- what ``benchmarks.joint_baselines`` says of schedules with uniform stages, of the best of them
  with the most even stages, and of AdaPtis' search; OctoPipe's tuner in its public simulator;
- the plan of ``evener plan --planner joint``, the lower bound, the gap between them, and how often
  what 1F1B holds the plan holds (layers x microbatches, from the forward until the last part of the
  backward, on the fullest worker).

Rows are numbered from 0: ``--rows 0-9,20``.  ``--seconds`` is the limit of each row, ``--actions``
the effort; with the effort alone, the same seed gives the same plans.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.joint_baselines import COLUMNS, baselines
from benchmarks.octopipe_rows import TICK_NS, chosen, layer_ticks, problem_of, rows
from evener.planner.joint.bench import TIME_NS, WEIGHT_NS, new_bench
from evener.planner.joint.judge import judge
from evener.planner.joint.plan_joint import JointPlanner
from evener.planner.joint.starts import most_stages, starts
from evener.planner.joint.world import NEVER, ChainCosts, world_of_chain
from evener.planner.result import PlanResult
from evener.planner.stop import MaxRuntime, NeverStop
from evener.schedules import PipelineTimes
from evener.schedules.adaptis_greedy import ALTERNATE
from evener.schedules.list_scheduler import ListWorld


def held(result: PlanResult) -> float:
    """Peak of layers x microbatches, relative to 1F1B's: all layers' worth on the first worker."""
    predicted = result.best.predicted
    assert predicted is not None, "planners predict"
    return max(predicted.peak_bytes) / len(result.best.layer_names)


@dataclass(frozen=True)
class Speed:
    """Whole plans per second of CPU on one core: order found and simulated, nothing cut short.

    scheduled: the same by the list scheduler of ``evener.schedules``, call included.
    """

    judged: float
    scheduled: float


def plans_per_second() -> Speed:
    """8 workers, 24 stages, 16 microbatches, in turns with what it is compared with."""
    times = [ticks for _, ticks in layer_ticks("nemotron-nano-v2-9B")]
    world = world_of_chain(ChainCosts(times), num_workers=8, num_microbatches=16)
    state = next(each for each in starts(world) if each.num_stages[0] == 24)
    bench = new_bench(world, most_stages(world))
    judge(world, state, bench, NEVER)
    rank = bench.rank[:24]
    stages = PipelineTimes(
        tuple(bench.slots[2 * rank, TIME_NS].tolist()),
        tuple(bench.slots[2 * rank + 1, TIME_NS].tolist()),
        tuple(bench.ranks[rank, WEIGHT_NS].tolist()),
        forward_message_ns=(0,) * 23,
        backward_message_ns=(0,) * 23,
        activation_bytes=(1,) * 24,
        weight_gradient_bytes=(1,) * 24,
    )
    others = ListWorld(
        stages, num_workers=8, num_microbatches=16, workers=state.worker[:24].tolist()
    )
    others.run(ALTERNATE)
    rounds = [
        (
            seconds(lambda: judge(world, state, bench, NEVER)),
            seconds(lambda: others.run(ALTERNATE)),
        )
        for _ in range(30)
    ]
    return Speed(*(1 / min(column) for column in zip(*rounds, strict=True)))


def seconds(call: Callable[[], object]) -> float:
    """CPU time of one call, the mean of ten."""
    begin = time.thread_time()
    for _ in range(10):
        call()
    return (time.thread_time() - begin) / 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="0-39")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--actions", type=int, default=JointPlanner().num_actions)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    speed = plans_per_second()
    print(
        f"{speed.judged:.0f} plans of 8 workers, 24 stages, 16 microbatches per second of one core,"
        f" {speed.judged / speed.scheduled:.1f} times as many as the list scheduler of the library"
    )
    print(f"row model                 p  m  ms{COLUMNS} octopipe  joint  bound   gap", end="")
    print("  vs octopipe  held  stages  plans  cpu s   s")
    table = list(rows())
    gaps, ratios, gains = [], [], []
    for number in chosen(options.rows, len(table)):
        row = table[number]
        others = baselines(problem_of(row))
        limit = NeverStop() if options.seconds is None else MaxRuntime(options.seconds)
        begin_s = time.process_time()
        result = JointPlanner(options.actions, one_pipeline=True)(
            problem_of(row), stop=limit, seed=options.seed, progress=lambda *_: None
        )
        cpu_s = time.process_time() - begin_s
        ticks, bound = result.objective_ns / TICK_NS, result.lower_bound_ns / TICK_NS
        gaps.append(ticks / bound - 1)
        ratios.append(row.octopipe / ticks)
        gains.append(others.interleaved.uniform / ticks)
        print(
            f"{number:3} {row.model:20} {row.workers:2} {row.microbatches:2} {row.comm_ms:3}"
            f"{others} {row.octopipe:8} {ticks:6.0f} {bound:6.0f}"
            f" {gaps[-1]:5.1%} {ratios[-1]:11.3f}x {held(result):5.2f}"
            f" {result.best.schedule.num_stages:7} {result.stats['simulated']:7}"
            f" {cpu_s:5.0f} {result.runtime_s:4.0f}",
            flush=True,
        )
    print(
        f"gap to the bound: mean {np.mean(gaps):.2%}, worst {max(gaps):.2%}; OctoPipe's step over"
        f" ours: mean {np.mean(ratios):.3f}, worst {min(ratios):.3f}; interleaved 1F1B's over ours:"
        f" mean {np.mean(gains):.2f}, up to {max(gains):.2f}"
    )


if __name__ == "__main__":
    main()
