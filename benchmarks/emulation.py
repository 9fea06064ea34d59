"""Prediction = execution: ``python -m benchmarks.emulation [--clock NAME]... [--workers N]...``.

Four schedules (all with ``--all``) run in real gloo processes, one per worker, on each clock,
without and with 5 ms of link latency, and are compared with the simulation of the same lowered
schedule:

- virtual: costs from a random table; number of actions whose start or end differs;
- measured: a real model whose stages have random numbers of layers, each step predicted from the
  means of its own measured costs; the median of 5 differences after 2 steps to warm up;
- wall: sleeps of 50 to 100 ms, shaped links; difference of the median of 5 steps.

With ``--side-work`` the bubbles are filled with the work of K-FAC first ("virtual" and "wall").

Ends with exit code 1 if any differs at all, by more than 5 %, or by more than 3 %.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np

from evener.cost.table import KIND_INDEX, CostTable
from evener.executor.emulate import emulate, measured_costs
from evener.executor.emulated_model import model_engine
from evener.ir.action import Action, Kind
from evener.ir.passes import lower
from evener.ir.plan import Plan
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.planner.pipe_fisher import KfacCosts, pipe_fisher
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec
from evener.testing.conformance import shape_for

MS = 1_000_000
NAMES = ("gpipe", "one_f_one_b", "interleaved_one_f_one_b", "zb_h1")
WORKERS = (2, 4, 8, 16)
LATENCIES_NS = (0, 5 * MS)
CLOCKS = ("virtual", "measured", "wall")
LIMITS = {"virtual": 0.0, "measured": 0.05, "wall": 0.03}
STEPS = 5


@dataclass(frozen=True)
class World:
    """One schedule on links of one latency."""

    name: str
    num_workers: int
    latency_ns: int
    has_side_work: bool = False

    @property
    def compute_only(self) -> Schedule:
        entry = SCHEDULES[self.name]
        if self.name.startswith("interleaved"):
            return entry(ScheduleShape(self.num_workers, self.num_workers, 2))
        return entry(shape_for(entry, self.num_workers, self.num_workers))

    @property
    def random(self) -> np.random.Generator:
        return np.random.default_rng(
            [self.num_workers, self.latency_ns, list(SCHEDULES).index(self.name)]
        )

    def costs(self, schedule: Schedule, unit_ns: int) -> CostTable:
        """Actions of one to two units, NORM and STEP of one MS, messages of up to half a unit."""
        random, size = self.random, (self.num_workers, self.num_workers)
        table = CostTable.uniform(self.num_workers, schedule.num_stages)
        time_ns = random.integers(unit_ns, 2 * unit_ns, size=table.time_ns.shape)
        for kind in (Kind.NORM, Kind.STEP):
            time_ns[:, :, KIND_INDEX[kind]] = MS
        return replace(
            table,
            time_ns=time_ns,
            forward_bytes=random.integers(unit_ns // 4, unit_ns // 2, size=schedule.num_stages),
            backward_bytes=random.integers(unit_ns // 4, unit_ns // 2, size=schedule.num_stages),
            latency_ns=np.full(size, self.latency_ns),
            bytes_per_s=np.full(size, 1_000_000_000),  # one byte per ns
        )

    def play(self, unit_ns: int) -> tuple[Schedule, CostTable]:
        """The lowered schedule with its side work, and the costs."""
        plain = lower(self.compute_only, clip=True)
        costs = self.costs(plain, unit_ns)
        if not self.has_side_work:
            return plain, costs
        num_stages = plain.num_stages
        sizes = self.random.integers(unit_ns // 4, unit_ns // 2, size=(num_stages, 6)).tolist()
        filling = pipe_fisher(
            self.compute_only,
            costs,
            {stage: KfacCosts(*row) for stage, row in enumerate(sizes)},
            partition=[(stage, stage + 1) for stage in range(num_stages)],
            lowered=plain,
        )
        filled = lower(filling.schedules[0], clip=True)
        return filled, replace(costs, side_ns=filling.side_ns)


def model_of(num_stages: int) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "name": "deep",
            "hidden_size": 128,
            "vocabulary_size": 512,
            "pattern": f"embedding {num_stages} x (attention mlp) head",
            "layer": {
                "embedding": {"kind": "embedding"},
                "attention": {"kind": "attention", "num_heads": 4, "head_dim": 32},
                "mlp": {"kind": "mlp", "intermediate_size": 512},
                "head": {"kind": "head"},
            },
        }
    )


def plan_of(world: World, model: ModelSpec, sequence_length: int = 128) -> Plan:
    """Stages of random numbers of layers, two on average, one at least."""
    schedule = world.compute_only
    num_layers = len(model.layers)
    cuts = world.random.choice(num_layers - 1, size=schedule.num_stages - 1, replace=False) + 1
    bounds = [0, *sorted(cuts.tolist()), num_layers]
    return Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=tuple(pairwise(bounds)),
        devices=tuple((f"cpu:{worker}",) for worker in range(world.num_workers)),
        microbatch_size=2,
        sequence_length=sequence_length,
        job=JobSpec.model_validate(
            {
                "global_batch_sequences": 2 * schedule.num_microbatches,
                "sequence_length": sequence_length,
                "clip_norm": 1.0,
            }
        ),
        schedule=schedule,
    )


def emulate_virtual(world: World) -> tuple[Timeline, float]:
    """A timeline, and the share of actions whose times differ from the simulation."""
    schedule, costs = world.play(MS)
    (played,) = emulate(schedule, costs)
    predicted = simulate(schedule, costs)
    times = zip(played.start_ns, played.end_ns, strict=True)
    expected = zip(predicted.start_ns, predicted.end_ns, strict=True)
    differing = sum(one != other for one, other in zip(times, expected, strict=True))
    return played, differing / schedule.num_actions


def emulate_measured(world: World) -> tuple[Timeline, float]:
    """The last timeline, and the median of how much steps differ from their predictions."""
    model = model_of(world.compute_only.num_stages)
    plan = plan_of(world, model)
    schedule = plan.lowered()
    costs = world.costs(schedule, MS // 4)
    timelines = emulate(
        schedule,
        costs,
        clock="measured",
        steps=2 + STEPS,
        make_engine=model_engine(plan, model),
    )[2:]
    differences = [
        difference((timeline,), simulate(schedule, measured_costs((timeline,), costs)))[1]
        for timeline in timelines
    ]
    return timelines[-1], median(differences)


def emulate_wall(world: World) -> tuple[Timeline, float]:
    schedule, costs = world.play(50 * MS)
    timelines = emulate(schedule, costs, clock="wall", steps=STEPS)
    return difference(timelines, simulate(schedule, costs))


def difference(timelines: tuple[Timeline, ...], predicted: Timeline) -> tuple[Timeline, float]:
    step_ns = median(timeline.step_ns for timeline in timelines)
    return timelines[-1], step_ns / predicted.step_ns - 1


RUNS = dict(zip(CLOCKS, (emulate_virtual, emulate_measured, emulate_wall), strict=True))


def has_order_of_schedule(timeline: Timeline) -> bool:
    """Whether every worker's compute actions ran in the order of its list."""
    for worker, actions in enumerate(timeline.schedule.workers):
        ran = sorted(
            (span.start_ns, position, span.action)
            for position, span in enumerate(timeline.spans(worker))
            if is_compute(span.action)
        )
        if [action for _, _, action in ran] != list(filter(is_compute, actions)):
            return False
    return True


def is_compute(action: Action) -> bool:
    return RULES[action.kind].stream is Stream.COMPUTE


def worlds(
    workers: tuple[int, ...], names: tuple[str, ...], has_side_work: bool
) -> Iterator[World]:
    for num_workers in workers:
        for name in names:
            for latency_ns in LATENCIES_NS:
                yield World(name, num_workers, latency_ns, has_side_work)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock", action="append", choices=CLOCKS)
    parser.add_argument("--workers", action="append", type=int, choices=WORKERS)
    parser.add_argument("--all", action="store_true", help="every registered schedule")
    parser.add_argument("--side-work", action="store_true", help="K-FAC in the bubbles")
    options = parser.parse_args()
    names = tuple(SCHEDULES) if options.all else NAMES
    clocks = tuple(options.clock or CLOCKS)
    if options.side_work:
        clocks = tuple(clock for clock in clocks if clock != "measured")
    print(f"{'workers':>7}  {'schedule':24} {'latency':>7}  {'clock':8} {'step':>9}  difference")
    worst = dict.fromkeys(clocks, 0.0)
    is_in_order = True
    for world in worlds(tuple(options.workers or WORKERS), names, options.side_work):
        for clock in clocks:
            timeline, differs = RUNS[clock](world)
            in_order = has_order_of_schedule(timeline)
            is_in_order = is_in_order and in_order
            worst[clock] = max(worst[clock], differs, key=abs)
            print(
                f"{world.num_workers:7}  {world.name:24} {world.latency_ns // MS:4} ms  {clock:8} "
                f"{timeline.step_ns / MS:6.0f} ms  {differs:+.2%}{'' if in_order else ' ORDER'}",
                flush=True,
            )
    print("worst:", ", ".join(f"{clock} {differs:+.2%}" for clock, differs in worst.items()))
    print(f"order of actions as in the schedule: {'always' if is_in_order else 'NOT always'}")
    within = all(abs(differs) <= LIMITS[clock] for clock, differs in worst.items())
    return 0 if within and is_in_order else 1


if __name__ == "__main__":
    sys.exit(main())
