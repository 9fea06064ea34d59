"""Freezing where it shortens the step: TimelyFreeze's shares against the same share everywhere.

    python -m benchmarks.freezing [--steps 40] [--max-share 0.5] [--clock wall|cpu] [--json]

The demo model is measured and planned; then three contestants take turns, step by step in the same
processes, so that whatever else the machine does hits all alike: nothing frozen, the mean of the
linear program's shares everywhere, and those shares.  The program is given what monitoring steps
measured with nothing and with everything frozen.

- wall: two worker processes train.  The planner's plan, whose stages are balanced, and uniform
  1F1B, whose last stage has the head and is much slower.
- cpu: uniform 1F1B on two and on four workers; each action costs the processor time of its thread,
  on a virtual clock.  So four workers need no four cores.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

import evener
from evener.api import costs_of_plan
from evener.cost.profile import Profile
from evener.cost.table import CostTable
from evener.executor.emulate import emulate
from evener.executor.emulated_model import ModelEngine
from evener.executor.launch import Rank, run_workers
from evener.executor.shared_memory import connect
from evener.executor.train import Trainer, trainer_connections
from evener.executor.transport import Transport
from evener.ir.freezing import WHOLE_PPM, Freezing
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.planner.freezing.linear_program import best_shares
from evener.planner.freezing.measured import measured_least_ns, measured_single_costs
from evener.spec import FreezeSpec, load_toml

RECIPES = Path(__file__).parent.parent / "recipes"
MICROBATCH_SIZES = (1, 2, 4)
CONTESTANTS = ("none", "uniform", "timely")
WARM_UP = 3
MONITOR_STEPS = 8


@dataclass(frozen=True)
class Row:
    """One plan; times are medians of a step. frozen: mean share of uniform and timely.

    pairs: the median, over the turns, of the step with uniform freezing by the one of the same
    turn with TimelyFreeze's: on a busy machine steadier than the ratio of the medians.
    """

    clock: str
    plan: str
    frozen: float
    none_ns: float
    uniform_ns: float
    timely_ns: float
    pairs: float

    @classmethod
    def of(cls, clock: str, plan: Plan, found: "Found") -> "Row":
        none, uniform, timely = (found.steps_ns[name] for name in CONTESTANTS)
        return cls(
            clock=clock,
            plan=_name(plan),
            frozen=found.frozen,
            none_ns=median(none),
            uniform_ns=median(uniform),
            timely_ns=median(timely),
            pairs=median(u / t for u, t in zip(uniform, timely, strict=True)),
        )

    def __str__(self) -> str:
        times = (self.none_ns, self.uniform_ns, self.timely_ns)
        return (
            f"{self.clock:6}{self.plan:32}{self.frozen:8.1%}"
            + "".join(f"{time_ns / 1e6:10.1f} ms" for time_ns in times)
            + f"{self.none_ns / self.timely_ns:8.3f}"
            + f"{self.uniform_ns / self.timely_ns:10.3f}{self.pairs:9.3f}"
        )


@dataclass(frozen=True)
class Found:
    """frozen: mean share. steps_ns: by contestant, of each turn."""

    frozen: float
    steps_ns: dict[str, list[int]]


@dataclass(frozen=True)
class Race:
    """What every process does. plan: of a job that freezes. steps: of each contestant."""

    plan: Plan
    model: evener.ModelSpec
    steps: int

    def run(self, rank: Rank) -> Found:
        transport = connect(rank, torch.device("cpu"), *trainer_connections(self.plan))
        timely = Trainer(self.plan, self.model, transport)
        found = self._through_the_phases(timely)
        mean_ppm = found.mean_ppm
        uniform = Freezing.uniform(self.plan.lowered(), mean_ppm)
        trainers = {
            "none": Trainer(_replan(self.plan, None), self.model, transport),
            "uniform": Trainer(_replan(self.plan, uniform), self.model, transport),
            "timely": timely,
        }
        times = self._take_turns(trainers, transport)
        transport.close()
        return Found(mean_ppm / WHOLE_PPM, times)

    def _through_the_phases(self, trainer: Trainer) -> Freezing:
        freeze = self.plan.job.freeze
        assert freeze is not None
        for step in range(freeze.warmup_steps + 2 * freeze.monitor_steps + 1):
            freezing = trainer.step(self._batch(step)).freezing
        assert freezing is not None
        return freezing

    def _take_turns(
        self, trainers: dict[str, Trainer], transport: Transport
    ) -> dict[str, list[int]]:
        times: dict[str, list[int]] = {name: [] for name in trainers}
        names = list(trainers)
        for turn in range(WARM_UP + self.steps):
            for name in names[turn % 3 :] + names[: turn % 3]:
                transport.barrier()
                result = trainers[name].step(self._batch(turn), timeline=True)
                assert result.timeline is not None
                if turn >= WARM_UP:
                    times[name].append(result.timeline.step_ns)
        return times

    def _batch(self, step: int) -> dict[str, torch.Tensor]:
        shape = (self.plan.job.num_sequences, self.plan.sequence_length + 1)
        generator = torch.Generator().manual_seed(step)
        tokens_BL = torch.randint(self.model.vocabulary_size or 0, shape, generator=generator)
        return {"inputs": tokens_BL[:, :-1], "targets": tokens_BL[:, 1:]}


@dataclass(frozen=True)
class Emulation:
    """The same on a virtual clock. costs: of all but compute."""

    plan: Plan
    model: evener.ModelSpec
    costs: CostTable
    steps: int

    def run(self) -> Found:
        everything = Freezing.uniform(self.plan.lowered(), WHOLE_PPM)
        full, frozen = self._play([None, everything], MONITOR_STEPS)
        freeze = self.plan.job.freeze
        assert freeze is not None
        timely = best_shares(
            self.plan.lowered(),
            measured_single_costs(full),
            least=measured_least_ns(frozen),
            max_share_ppm=freeze.max_share_ppm,
        ).freezing
        uniform = Freezing.uniform(self.plan.lowered(), timely.mean_ppm)
        played = self._play([None, uniform, timely], self.steps)
        steps_ns = [[timeline.step_ns for timeline in timelines] for timelines in played]
        return Found(timely.mean_ppm / WHOLE_PPM, dict(zip(CONTESTANTS, steps_ns, strict=True)))

    def _play(self, freezings: list[Freezing | None], steps: int) -> list[list[Timeline]]:
        """The timelines of each freezing; they take turns."""

        def make(schedule: Schedule, transport: Transport) -> Turns:
            return Turns(ModelEngine(self.plan, self.model, schedule, transport), freezings)

        timelines = emulate(
            self.plan.lowered(),
            self.costs,
            clock="measured",
            steps=len(freezings) * (WARM_UP + steps),
            make_engine=make,
        )
        warm = timelines[len(freezings) * WARM_UP :]
        return [list(warm[place :: len(freezings)]) for place in range(len(freezings))]


class Turns:
    """An emulated engine that freezes something else in each step, in turn."""

    def __init__(self, engine: ModelEngine, freezings: list[Freezing | None]) -> None:
        self.signature = engine.signature
        self.run = engine.run
        self.payload = engine.payload
        self.accept = engine.accept
        self.collective = engine.collective
        self.end_step = engine.end_step
        self._engine, self._freezings, self._step = engine, freezings, 0

    def begin_step(self) -> None:
        self._engine.begin_step()
        chosen = self._freezings[self._step % len(self._freezings)]
        assert self._engine.freezing_engine is not None, "the plan freezes"
        self._engine.freezing_engine.freeze(chosen, step=self._step)
        self._step += 1


def _replan(plan: Plan, freezing: Freezing | None) -> Plan:
    """The same plan with other shares, in force from the first step on."""
    at_once = FreezeSpec(max_share=1.0, monitor_steps=0, ramp_steps=0)
    job = plan.job.model_copy(update={"freeze": None if freezing is None else at_once})
    return plan.changed(job=job, freezing=freezing, predicted=None)


class World:
    """The demo, measured."""

    def __init__(self, max_share: float) -> None:
        self.model = load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)
        freeze = FreezeSpec(
            max_share=max_share, warmup_steps=WARM_UP, monitor_steps=MONITOR_STEPS, ramp_steps=0
        )
        job = load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec)
        self.job = job.model_copy(update={"freeze": freeze})
        self.profile: Profile = evener.measure(
            self.model, self.cluster(2), self.job, microbatch_sizes=MICROBATCH_SIZES
        )

    def cluster(self, num_workers: int) -> evener.ClusterSpec:
        node = {"name": "local", "device": "cpu-core", "count": num_workers}
        return evener.ClusterSpec.model_validate({"name": f"local-{num_workers}", "nodes": (node,)})

    def plan(self, planner: str, num_workers: int) -> Plan:
        # Uniform 1F1B has a worker that needs more than the job allows.
        cap = self.job.memory_cap_bytes if planner == "sweep" else None
        size = "auto" if planner == "sweep" else 2
        job = self.job.model_copy(update={"memory_cap_bytes": cap, "microbatch_size": size})
        cluster = self.cluster(num_workers)
        return evener.find_plan(self.model, cluster, job, self.profile, planner=planner).best

    def emulation(self, num_workers: int, steps: int) -> Emulation:
        plan = self.plan("uniform", num_workers)
        costs = costs_of_plan(plan, self.profile, self.cluster(num_workers))
        return Emulation(plan, self.model, costs, steps)


def rows(world: World, steps: int, clock: str) -> Iterator[Row]:
    for planner in ("sweep", "uniform") if clock != "cpu" else ():
        race = Race(world.plan(planner, 2), world.model, steps)
        found = run_workers(race.run, race.plan.num_workers, timeout_s=900.0)[0]
        yield Row.of("wall", race.plan, found)
    for num_workers in (2, 4) if clock != "wall" else ():
        emulation = world.emulation(num_workers, steps)
        yield Row.of("cpu", emulation.plan, emulation.run())


def _name(plan: Plan) -> str:
    layers = "+".join(str(end - first) for first, end in plan.partition)
    schedule = plan.schedule.name.replace("interleaved_one_f_one_b", "interleaved")
    return f"{schedule}, {layers}, {plan.schedule.num_microbatches} mb"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="of each of the three")
    parser.add_argument("--max-share", type=float, default=0.5, help="cap on a stage's mean share")
    parser.add_argument("--clock", choices=("wall", "cpu", "both"), default="both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print(f"{'clock':6}{'plan':32}{'frozen':>8}", end="")
        print("".join(f"{name:>13}" for name in CONTESTANTS), end="")
        print(f"{'x none':>8}{'x uniform':>10}{'of pairs':>9}")
    for row in rows(World(options.max_share), options.steps, options.clock):
        print(json.dumps(asdict(row)) if options.json else row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
