"""Freezing where it shortens the step: TimelyFreeze's shares against the same share everywhere.

    python -m benchmarks.freezing [--steps 30] [--max-share 0.5] [--json]

The demo model is measured, planned for two workers and trained by two forked processes, three
times over in the same processes: with nothing frozen; with the shares that the linear program
finds, once monitoring has timed all actions; and with their mean for every stage and microbatch.
The three take turns, step by step, so that whatever else the machine does hits all alike.

Two plans: the planner's, which balances the stages by moving layers, and uniform 1F1B, whose last
stage has the head and is much slower than the first.
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
from evener.executor.launch import Rank, run_workers
from evener.executor.shared_memory import transport_for
from evener.executor.train import Trainer, trainer_connections
from evener.executor.transport import Transport
from evener.ir.freezing import WHOLE_PPM, Freezing
from evener.ir.plan import Plan
from evener.spec import FreezeSpec, load_toml

RECIPES = Path(__file__).parent.parent / "recipes"
MICROBATCH_SIZES = (1, 2, 4)
PLANNERS = ("sweep", "uniform")
WARM_UP = 3
MONITOR_STEPS = 8


@dataclass(frozen=True)
class Row:
    """One plan; times are medians of a step. frozen: share on average."""

    plan: str
    frozen: float
    none_ns: float
    uniform_ns: float
    timely_ns: float

    @property
    def speed_up(self) -> float:
        """Over the same mean share everywhere."""
        return self.uniform_ns / self.timely_ns

    def __str__(self) -> str:
        times = (self.none_ns, self.uniform_ns, self.timely_ns)
        return (
            f"{self.plan:34}{self.frozen:8.1%}"
            + "".join(f"{time_ns / 1e6:10.1f} ms" for time_ns in times)
            + f"{self.none_ns / self.timely_ns:12.3f}{self.speed_up:12.3f}"
        )


@dataclass(frozen=True)
class Race:
    """What every process does. plan: of a job that freezes. steps: of each contestant."""

    plan: Plan
    model: evener.ModelSpec
    steps: int

    def run(self, rank: Rank) -> tuple[float, dict[str, float]]:
        """The mean share, and the median step of each contestant."""
        pairs, groups = trainer_connections(self.plan)
        device = torch.device("cpu")
        transport = transport_for(rank, device)(
            rank.store,
            worker=rank.index,
            num_workers=rank.num_ranks,
            pairs=pairs,
            groups=groups,
            device=device,
        )
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
        return mean_ppm / WHOLE_PPM, {name: median(each) for name, each in times.items()}

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


def _replan(plan: Plan, freezing: Freezing | None) -> Plan:
    """The same plan with other shares, in force from the first step on."""
    at_once = FreezeSpec(max_share=1.0, monitor_steps=0, ramp_steps=0)
    job = plan.job.model_copy(update={"freeze": None if freezing is None else at_once})
    return Plan(**{**dict(plan), "job": job, "freezing": freezing, "predicted": None})


def races(max_share: float, steps: int) -> Iterator[tuple[str, Race]]:
    model = load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)
    cluster = load_toml(RECIPES / "clusters/local-2.toml", evener.ClusterSpec)
    job = load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec)
    freeze = FreezeSpec(
        max_share=max_share, warmup_steps=WARM_UP, monitor_steps=MONITOR_STEPS, ramp_steps=0
    )
    # Without a cap on memory, so that uniform 1F1B may hold the head with its optimizer.
    job = job.model_copy(update={"freeze": freeze, "memory_cap_bytes": None})
    profile = evener.measure(model, cluster, job, microbatch_sizes=MICROBATCH_SIZES)
    for planner in PLANNERS:
        plan = evener.find_plan(model, cluster, job, profile, planner=planner).best
        layers = "+".join(str(end - first) for first, end in plan.partition)
        name = f"{plan.schedule.name}, {layers}, {plan.schedule.num_microbatches} mb"
        yield name, Race(plan, model, steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30, help="of each of the three")
    parser.add_argument("--max-share", type=float, default=0.5, help="cap on a stage's mean share")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    columns = ("none", "uniform", "timely")
    if not options.json:
        print(f"{'plan':34}{'frozen':>8}" + "".join(f"{name:>13}" for name in columns), end="")
        print(f"{'over none':>12}{'over unif.':>12}")
    for name, race in races(options.max_share, options.steps):
        frozen, times = run_workers(race.run, race.plan.num_workers, timeout_s=600.0)[0]
        row = Row(name, frozen, *(times[column] for column in columns))
        print(json.dumps(asdict(row)) if options.json else row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
