"""Activations in host memory for a while: bytes that are alive, and what a step takes longer.

    python -m benchmarks.offload [--steps 15] [--json]

Two forked processes train a small transformer by one schedule, three times over in the same
processes: with nothing offloaded; with every cell that lives long enough offloaded whole; and with
a quarter of each. They take turns, step by step, so that whatever else the machine does hits all
alike. Bytes are measured in a step of their own, by weak references to the memory of what
forwards have saved. On CPUs device and host memory are one, so a copy competes with the layers for
cores and memory bandwidth: the ratio of times is worse than where a copy engine does it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

import torch

from evener.executor.launch import Rank, run_workers
from evener.executor.live_bytes import LiveBytes
from evener.executor.shared_memory import connect
from evener.executor.train import Trainer, trainer_connections
from evener.executor.transport import Transport
from evener.ir.passes import insert_offload, offloadable
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec import JobSpec, ModelSpec

NUM_WORKERS = 2
WARM_UP = 3
SEQUENCE_LENGTH = 256
MODEL = ModelSpec.model_validate(
    {
        "name": "offload-benchmark",
        "hidden_size": 192,
        "vocabulary_size": 256,
        "layer": {
            "attention": {"kind": "attention", "num_heads": 4, "head_dim": 48},
            "mlp": {"kind": "mlp", "intermediate_size": 768},
            "embedding": {"kind": "embedding"},
            "head": {"kind": "head"},
        },
        "pattern": "embedding 4 x (attention mlp) head",
    }
)
SCHEDULE_NAMES = {
    "gpipe, 8 microbatches": ("gpipe", ScheduleShape(NUM_WORKERS, 8)),
    "sppo, 8 slices": ("sppo", ScheduleShape(NUM_WORKERS, 1, num_slices=8)),
}


@dataclass(frozen=True)
class Row:
    """One way to train. step_ns: median. peak_bytes: of saved activations, by worker."""

    schedule: str
    offloaded: str
    step_ns: float
    ratio: float
    peak_bytes: tuple[int, ...]

    def __str__(self) -> str:
        peaks = "".join(f"{peak / 2**20:10.2f} MiB" for peak in self.peak_bytes)
        return (
            f"{self.schedule:24}{self.offloaded:10}{self.step_ns / 1e6:10.1f} ms"
            f"{self.ratio:8.3f}{peaks}"
        )


@dataclass(frozen=True)
class Race:
    """What every process does, for plans that differ in what they offload."""

    plans: dict[str, Plan]
    steps: int

    def run(self, rank: Rank) -> dict[str, tuple[float, int]]:
        """Per plan the median step, and the most bytes that were alive on this worker."""
        transport = connect(rank, torch.device("cpu"), *trainer_connections(self.plans["nothing"]))
        peaks = {name: self._peak_bytes(plan, transport) for name, plan in self.plans.items()}
        times = self._take_turns(transport)
        transport.close()
        return {name: (median(times[name]), peaks[name]) for name in self.plans}

    def _peak_bytes(self, plan: Plan, transport: Transport) -> int:
        trainer = Trainer(plan, MODEL, transport)
        live = LiveBytes(trainer.engine)
        trainer.step(_batch(plan, 0))
        return live.peak_bytes

    def _take_turns(self, transport: Transport) -> dict[str, list[int]]:
        trainers = {name: Trainer(plan, MODEL, transport) for name, plan in self.plans.items()}
        times: dict[str, list[int]] = {name: [] for name in trainers}
        names = list(trainers)
        for turn in range(WARM_UP + self.steps):
            for name in names[turn % 3 :] + names[: turn % 3]:
                transport.barrier()
                batch = _batch(self.plans[name], turn)
                timeline = trainers[name].step(batch, timeline=True).timeline
                assert timeline is not None
                if turn >= WARM_UP:
                    times[name].append(timeline.step_ns)
        return times


def _batch(plan: Plan, step: int) -> dict[str, torch.Tensor]:
    shape = (plan.job.num_sequences, plan.sequence_length + 1)
    generator = torch.Generator().manual_seed(step)
    tokens_BL = torch.randint(MODEL.vocabulary_size or 0, shape, generator=generator)
    return {"inputs": tokens_BL[:, :-1], "targets": tokens_BL[:, 1:]}


def plan_of(schedule: Schedule, offload_bytes: Sequence[int] | None = None) -> Plan:
    num_layers, per_stage = len(MODEL.layers), len(MODEL.layers) // NUM_WORKERS
    job = JobSpec(global_batch_sequences=schedule.num_microbatches, sequence_length=SEQUENCE_LENGTH)
    slices = schedule.num_slices
    return Plan(
        model=MODEL.name,
        model_fingerprint=MODEL.fingerprint(),
        layer_names=tuple(layer.name for layer in MODEL.layers),
        partition=((0, per_stage), (per_stage, num_layers)),
        devices=tuple((f"local:{worker}",) for worker in range(NUM_WORKERS)),
        microbatch_size=1,
        sequence_length=SEQUENCE_LENGTH,
        job=job,
        slice_tokens=(SEQUENCE_LENGTH // slices,) * slices if slices > 1 else None,
        schedule=schedule,
        offload_bytes=None if offload_bytes is None else tuple(offload_bytes),
    )


def race(name: str, shape: ScheduleShape, steps: int) -> list[dict[str, tuple[float, int]]]:
    """What each worker found."""
    plain = SCHEDULES[name](shape)
    moved = insert_offload(plain, offloadable(plain))
    plans = {"nothing": plan_of(plain), "whole": plan_of(moved)}
    whole = run_workers(Race(plans, 1).run, NUM_WORKERS, timeout_s=300.0)
    num_cells = plain.num_microbatches * plain.num_slices
    plans["a quarter"] = plan_of(
        moved, [worker["nothing"][1] // num_cells // 4 for worker in whole]
    )
    return run_workers(Race(plans, steps).run, NUM_WORKERS, timeout_s=600.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15, help="of each of the three")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print(f"{'schedule':24}{'offloaded':10}{'step':>13}{'ratio':>8}{'alive on 0':>14}", end="")
        print(f"{'alive on 1':>14}")
    for title, (name, shape) in SCHEDULE_NAMES.items():
        found = race(name, shape, options.steps)
        plain_ns = found[0]["nothing"][0]
        for offloaded, (step_ns, _) in found[0].items():
            peaks = tuple(worker[offloaded][1] for worker in found)
            row = Row(title, offloaded, step_ns, step_ns / plain_ns, peaks)
            print(json.dumps(asdict(row)) if options.json else row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
