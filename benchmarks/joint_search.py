"""The joint search beside AdaPtis' own tuner: ``python -m benchmarks.joint_search``.

For each row of ``tests/data/octopipe_baselines.csv`` (a model with measured layer times, workers,
microbatches, and time of a message), in ticks of 0.01 ms:

- 1F1B with uniform stages, interleaved 1F1B with two chunks, and the plan of OctoPipe's tuner, as
  its public simulator has them;
- the plan of ``evener plan --planner joint``, the lower bound, the gap between them, and how often
  what 1F1B holds the plan holds (layers x microbatches, from the forward until the last part of the
  backward, on the fullest worker).

Rows are numbered from 0: ``--rows 0-9,20``.  ``--seconds`` is the limit of each row, ``--actions``
the effort; with the effort alone, the same seed gives the same plans.
"""

import argparse
import csv
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.planner.joint.judge import TIME_NS, judge, new_bench
from evener.planner.joint.plan_joint import JointPlanner
from evener.planner.joint.starts import most_stages, starts
from evener.planner.joint.world import NEVER, ChainCosts, world_of_chain
from evener.planner.problem import Problem
from evener.planner.result import PlanResult
from evener.planner.stop import MaxRuntime, NeverStop
from evener.schedules import PipelineTimes
from evener.schedules.adaptis_greedy import ALTERNATE
from evener.schedules.list_scheduler import ListWorld
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

DATA = Path(__file__).parents[1] / "tests" / "data"

TICK_NS = 10_000
"""0.01 ms."""

LETTERS = {"-": "mlp", "*": "attention", "#": "moe"}
"""Names for those letters of a pattern that are none."""


@dataclass(frozen=True)
class Row:
    """One line of the table; times in ticks, but the message's."""

    model: str
    workers: int
    microbatches: int
    comm_ms: float
    one_f_one_b: int
    interleaved: int
    octopipe: int


def rows() -> Iterator[Row]:
    lines = (DATA / "octopipe_baselines.csv").read_text(encoding="utf-8").splitlines()
    for line in csv.DictReader(line for line in lines if not line.startswith("#")):
        yield Row(
            line["model"],
            int(line["workers"]),
            int(line["microbatches"]),
            float(line["comm_ms"]),
            int(line["one_f_one_b"]),
            int(line["interleaved_2"]),
            int(line["octopipe"]),
        )


def layer_ticks(model: str) -> list[tuple[str, tuple[int, int, int]]]:
    """Name and (forward, input gradient, weight gradient) of every layer, E and L included."""
    profile = tomllib.loads((DATA / "hybrid_profiles.toml").read_text(encoding="utf-8"))[model]
    layers = []
    for letter in f"E{profile['pattern']}L":
        forward, input_grad, weight_grad = (round(100 * part) for part in profile[letter])
        layers.append((LETTERS.get(letter, letter), (forward, input_grad, weight_grad)))
    return layers


def problem_of(row: Row) -> Problem:
    """Workers of unlimited memory, one pipeline."""
    layers = layer_ticks(row.model)
    kinds = dict(layers)
    model = ModelSpec.model_validate(
        {
            "name": row.model,
            "hidden_size": 1,
            "norm": "none",
            "layer": {name: {"kind": "module", "num_parameters": 0} for name in kinds},
            "pattern": " ".join(name for name, _ in layers),
        }
    )
    cluster = ClusterSpec.local(row.workers)
    latency_ns = round(row.comm_ms * 1e6)
    names = cluster.devices
    profile = Profile(
        model=row.model,
        fingerprint=model.fingerprint(),
        device_type="cpu",
        host="hybrid_profiles.toml",
        dtype="float32",
        layers=tuple(_layer_cost(name, *ticks) for name, ticks in kinds.items()),
        links=tuple(
            LinkCost(from_device=a, to_device=b, latency_ns=latency_ns, bytes_per_s=0)
            for a in names
            for b in names
            if a != b
        ),
    )
    job = JobSpec(global_batch_sequences=row.microbatches, sequence_length=1, microbatch_size=1)
    return Problem(model, cluster, job, profile)


def _layer_cost(name: str, forward: int, input_grad: int, weight_grad: int) -> LayerCost:
    return LayerCost(
        layer=name,
        microbatch_size=1,
        sequence_length=1,
        forward_ns=forward * TICK_NS,
        backward_ns=(input_grad + weight_grad) * TICK_NS,
        input_grad_ns=input_grad * TICK_NS,
        weight_grad_ns=weight_grad * TICK_NS,
        recompute_ns=forward * TICK_NS,
        parameter_bytes=0,
        activation_bytes=1,
        weight_gradient_bytes=1,
        input_bytes=0,
        output_bytes=0,
    )


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
    stages = PipelineTimes(
        *(tuple(bench.stages[:24, TIME_NS + kind].tolist()) for kind in range(3)),
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


def chosen(text: str, count: int) -> list[int]:
    """Numbers from a text such as 0-3,7."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return [number for number in numbers if number < count]


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
    print("row model                 p  m  ms    1F1B inter2 octopipe  joint  bound   gap", end="")
    print("  vs octopipe  held  stages  plans  cpu s   s")
    table = list(rows())
    gaps, ratios = [], []
    for number in chosen(options.rows, len(table)):
        row = table[number]
        limit = NeverStop() if options.seconds is None else MaxRuntime(options.seconds)
        begin_s = time.process_time()
        result = JointPlanner(options.actions, one_pipeline=True)(
            problem_of(row), stop=limit, seed=options.seed, progress=lambda *_: None
        )
        cpu_s = time.process_time() - begin_s
        ticks, bound = result.objective_ns / TICK_NS, result.lower_bound_ns / TICK_NS
        gaps.append(ticks / bound - 1)
        ratios.append(row.octopipe / ticks)
        print(
            f"{number:3} {row.model:20} {row.workers:2} {row.microbatches:2} {row.comm_ms:3}"
            f" {row.one_f_one_b:7} {row.interleaved:6} {row.octopipe:8} {ticks:6.0f} {bound:6.0f}"
            f" {gaps[-1]:5.1%} {ratios[-1]:11.3f}x {held(result):5.2f}"
            f" {result.best.schedule.num_stages:7} {result.stats['simulated']:7}"
            f" {cpu_s:5.0f} {result.runtime_s:4.0f}",
            flush=True,
        )
    print(
        f"gap to the bound: mean {np.mean(gaps):.2%}, worst {max(gaps):.2%}; OctoPipe's step over"
        f" ours: mean {np.mean(ratios):.3f}, worst {min(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
