"""Loss curves of asynchronous schedules beside the synchronous one, on real text.

    python -m benchmarks.asynchronous [--steps 300] [--updates-per-flush 30] [--json]

The demo model is trained from the same start on the source files of Python's standard library by
two forked processes: under 1F1B, under PipeDream-2BW and under AMDP in two directions.  Losses are
means over the last 20 updates; the band is the farthest that such a mean is from that of 1F1B at
the same update, from update 50 on.  The exit status is 1 if a band is wider than ``BANDS`` says, or
if any microbatch was staler than one update.
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
from evener.executor.shared_memory import connect
from evener.executor.text_data import TextTokens, read_text
from evener.executor.train import Trainer, trainer_connections
from evener.ir.plan import Plan
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec import load_toml

RECIPES = Path(__file__).parent.parent / "recipes"
NAMES = ("one_f_one_b", "pipedream_2bw", "amdp_2")
BANDS = {"one_f_one_b": 0.0, "pipedream_2bw": 0.6, "amdp_2": 0.35}  # in nats
# Less than the demo's batch, for time.
NUM_SEQUENCES = 4
SEQUENCE_LENGTH = 32
MICROBATCH_SIZE = 1
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

    def __str__(self) -> str:
        return (
            f"{self.schedule:16}{self.update_ns / 1e6:7.1f} ms{self.staleness:7}{self.band:8.3f}"
            + "".join(f"{loss:10.3f}" for loss in self.losses.values())
        )


@dataclass(frozen=True)
class Training:
    """What every process does under one plan."""

    plan: Plan
    model: evener.ModelSpec
    text: TextTokens
    steps: int

    def run(self, rank: Rank) -> tuple[list[float], float, int]:
        """The loss of every update, the median time of one, and the staleness."""
        transport = connect(rank, torch.device("cpu"), *trainer_connections(self.plan))
        losses, times, staleness = self._train(Trainer(self.plan, self.model, transport))
        staleness = max(transport.gather(staleness))
        transport.close()
        return losses, median(times), staleness

    def _train(self, trainer: Trainer) -> tuple[list[float], list[int], int]:
        losses, times, staleness = [], [], 0
        size = trainer.schedule.updates.number
        for first in range(0, self.steps, size):
            steps = range(first, min(first + size, self.steps))
            results = trainer.steps(list(map(self._batch, steps)), timeline=True)
            losses += [result.loss for result in results]
            timeline = results[0].timeline
            assert timeline is not None
            times += [timeline.update_ns] * len(steps)
            if trainer.versions is not None:
                read = trainer.versions.read.items()
                found = (trainer.schedule.update_of(action) - version for action, version in read)
                staleness = max(staleness, *found)
        return losses, times, staleness

    def _batch(self, step: int) -> dict[str, torch.Tensor]:
        return self.text.batch(
            num_sequences=self.plan.job.num_sequences,
            sequence_length=self.plan.sequence_length,
            seed=self.plan.job.seed,
            step=step,
        )


def make_plans(model: evener.ModelSpec, updates_per_flush: int) -> list[Plan]:
    """The head on the second worker, all else on the first; without a cap on memory.

    In two directions every worker holds the whole model.
    """
    job = load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec)
    changes = {"memory_cap_bytes": None, "asynchronous": True}
    sizes = {"global_batch_sequences": NUM_SEQUENCES, "sequence_length": SEQUENCE_LENGTH}
    job = job.model_copy(update={**changes, **sizes})
    size = job.num_sequences // MICROBATCH_SIZE
    num_layers = len(model.layers)
    plans = []
    for name in NAMES:
        updates = updates_per_flush if SCHEDULES[name].asynchronous else 1
        plan = Plan(
            model=model.name,
            model_fingerprint=model.fingerprint(),
            layer_names=tuple(layer.name for layer in model.layers),
            partition=((0, num_layers - 1), (num_layers - 1, num_layers)),
            devices=(("cpu:0",), ("cpu:1",)),
            microbatch_size=MICROBATCH_SIZE,
            sequence_length=job.sequence_length,
            job=job,
            schedule=SCHEDULES[name](ScheduleShape(2, size, num_updates=updates)),
        )
        plans.append(plan)
    return plans


def smooth(losses: Sequence[float]) -> list[float]:
    return [mean(losses[max(0, end - WINDOW) : end]) for end in range(1, len(losses) + 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="updates of each training")
    parser.add_argument("--updates-per-flush", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)
    assert model.vocabulary_size is not None
    text = read_text(Path(sysconfig.get_path("stdlib")), vocabulary_size=model.vocabulary_size)
    shown = range(options.steps // 6, options.steps + 1, options.steps // 6)
    if not options.json:
        print(f"{'schedule':16}{'update':>10}{'stale':>7}{'band':>8}", end="")
        print("".join(f"{f'loss {step}':>10}" for step in shown), flush=True)
    synchronous: list[float] = []
    is_wrong = False
    for plan in make_plans(model, options.updates_per_flush):
        training = Training(plan, model, text, options.steps)
        losses, update_ns, staleness = run_workers(training.run, 2, timeout_s=3600.0)[0]
        curve = smooth(losses)
        synchronous = synchronous or curve
        pairs = list(zip(curve, synchronous, strict=True))[FIRST_COMPARED:]
        band = max((abs(ours - theirs) for ours, theirs in pairs), default=0.0)
        at = {step: curve[step - 1] for step in shown}
        row = Row(plan.schedule.name, update_ns, staleness, at, band)
        print(json.dumps(asdict(row)) if options.json else row, flush=True)
        is_wrong |= row.band > BANDS[row.schedule] or row.staleness > 1
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
