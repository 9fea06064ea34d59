"""Loss curves of asynchronous schedules beside the synchronous one, on real text.

    python -m benchmarks.asynchronous [--steps 300] [--updates-per-flush 30] [--json]

The demo model is trained from the same start on the source files of Python's standard library by
two forked processes: under 1F1B, under PipeDream-2BW and under AMDP in two directions.  Losses are
means over the last 20 updates; the band is the farthest that such a mean is from that of 1F1B at
the same update, from update 50 on.  The exit status is 1 if a band is wider than ``--band``, or if
any microbatch was staler than one update.
"""

import argparse
import json
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median

import torch

import evener
from evener.executor.launch import Rank, run_workers
from evener.executor.shared_memory import transport_for
from evener.executor.text_data import TextTokens, read_text
from evener.executor.train import Trainer, trainer_connections
from evener.ir.plan import Plan
from evener.planner.candidate import Candidate, Shape
from evener.planner.problem import Problem
from evener.planner.result import Status
from evener.planner.sweep import balanced
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec import load_toml

RECIPES = Path(__file__).parent.parent / "recipes"
NAMES = ("one_f_one_b", "pipedream_2bw", "amdp_2")
MICROBATCH_SIZE = 2
WINDOW = 20
FIRST_COMPARED = 50


@dataclass(frozen=True)
class Row:
    """One training; update_ns: median. staleness: the most that any microbatch had.

    losses: by update, means over a window that ends there. band: see above.
    """

    schedule: str
    update_ns: float
    staleness: int
    losses: dict[int, float]
    band: float


@dataclass(frozen=True)
class Race:
    """What every process does."""

    plans: Sequence[Plan]
    model: evener.ModelSpec
    text: TextTokens
    steps: int

    def run(self, rank: Rank) -> list[tuple[list[float], float, int]]:
        """Per plan, the loss of every update, the median time of one, and the staleness."""
        device = torch.device("cpu")
        found = [trainer_connections(plan) for plan in self.plans]
        transport = transport_for(rank, device)(
            rank.store,
            worker=rank.index,
            num_workers=rank.num_ranks,
            pairs=sorted({pair for pairs, _ in found for pair in pairs}),
            groups=sorted({group for _, groups in found for group in groups}),
            device=device,
        )
        results = []
        for plan in self.plans:
            losses, times, staleness = self._train(Trainer(plan, self.model, transport))
            results.append((losses, median(times), max(transport.gather(staleness))))
        transport.close()
        return results

    def _train(self, trainer: Trainer) -> tuple[list[float], list[int], int]:
        losses, times, staleness = [], [], 0
        size = trainer.schedule.updates.number
        for first in range(0, self.steps, size):
            steps = range(first, min(first + size, self.steps))
            results = trainer.steps(
                [self._batch(trainer.plan, step) for step in steps], timeline=True
            )
            losses += [result.loss for result in results]
            timeline = results[0].timeline
            assert timeline is not None
            times += [timeline.update_ns] * len(steps)
            if trainer.versions is not None:
                read = trainer.versions.read.items()
                found = (trainer.schedule.update_of(action) - version for action, version in read)
                staleness = max(staleness, *found)
        return losses, times, staleness

    def _batch(self, plan: Plan, step: int) -> dict[str, torch.Tensor]:
        return self.text.batch(
            num_sequences=plan.job.num_sequences,
            sequence_length=plan.sequence_length,
            seed=plan.job.seed,
            step=step,
        )


def make_plans(model: evener.ModelSpec, updates_per_flush: int) -> list[Plan]:
    cluster = load_toml(RECIPES / "clusters/local-2.toml", evener.ClusterSpec)
    job = load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec)
    # Without a cap on memory: in two directions every worker holds the whole model.
    job = job.model_copy(update={"memory_cap_bytes": None, "asynchronous": True})
    profile = evener.measure(model, cluster, job, microbatch_sizes=(MICROBATCH_SIZE,))
    problem = Problem(model, cluster, job, profile)
    plans = []
    for name in NAMES:
        entry = SCHEDULES[name]
        updates = updates_per_flush if entry.asynchronous else 1
        sizes = ScheduleShape(2, job.num_sequences // MICROBATCH_SIZE, num_updates=updates)
        candidate = Candidate(problem, Shape(entry, sizes, MICROBATCH_SIZE, replicas=1))
        partition = balanced(candidate, with_caps=False)
        assert partition is not None
        result = candidate.result(
            candidate.evaluate(partition),
            lower_bound_ns=0,
            status=Status.SEARCHED,
            runtime_s=0.0,
            stats={},
        )
        plans.append(result.best)
    return plans


def smooth(losses: Sequence[float]) -> list[float]:
    return [mean(losses[max(0, end - WINDOW) : end]) for end in range(1, len(losses) + 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="updates of each training")
    parser.add_argument("--updates-per-flush", type=int, default=30)
    parser.add_argument("--band", type=float, default=0.15, help="in nats")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)
    assert model.vocabulary_size is not None
    text = read_text(Path(sysconfig.get_path("stdlib")), vocabulary_size=model.vocabulary_size)
    race = Race(make_plans(model, options.updates_per_flush), model, text, options.steps)
    results = run_workers(race.run, 2, timeout_s=3600.0)[0]
    synchronous = smooth(results[0][0])
    shown = range(options.steps // 6, options.steps + 1, options.steps // 6)
    rows = []
    for plan, (losses, update_ns, staleness) in zip(race.plans, results, strict=True):
        curve = smooth(losses)
        pairs = list(zip(curve, synchronous, strict=True))[FIRST_COMPARED:]
        band = max((abs(ours - theirs) for ours, theirs in pairs), default=0.0)
        at = {step: curve[step - 1] for step in shown}
        rows.append(Row(plan.schedule.name, update_ns, staleness, at, band))
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print(f"{'schedule':16}{'update':>10}{'stale':>7}{'band':>8}   loss at update", end="")
        print("".join(f"{step:>8}" for step in shown))
        for row in rows:
            losses_text = "".join(f"{loss:8.3f}" for loss in row.losses.values())
            print(
                f"{row.schedule:16}{row.update_ns / 1e6:7.1f} ms{row.staleness:7}{row.band:8.3f}"
                f"{'':17}{losses_text}"
            )
    return int(any(row.band > options.band or row.staleness > 1 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
