"""Evener's executor against torch.distributed.pipelining: same model, schedule and microbatches.

Two forked processes, one thread each.  Torch's messages go through gloo, which is all that it has
on CPUs; Evener's through shared memory, as in ``evener train`` (with ``--gloo`` through gloo too).
Both executors are built in the same processes and take turns step by step, so that whatever else
the machine does hits both alike.  The order of the compute actions is taken from torch's own
schedule objects.  A step is forward, backward, an SGD update, and telling every rank the loss.
Parameters must agree at the end.

    python -m benchmarks.executor_vs_torch [--steps 20] [--launches 3] [--gloo] [--json]
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from benchmarks.under_torch import TorchJob, UnderTorch
from evener.executor.launch import Rank, run_workers
from evener.executor.shared_memory import transport_for
from evener.executor.torch_transport import TorchTransport
from evener.executor.train import Trainer
from evener.interp.worker import WorkerProgram
from evener.ir.plan import Plan
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import ScheduleShape, one_f_one_b
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

NUM_WORKERS = 2
NUM_MICROBATCHES = 8
MICROBATCH_SIZE = 2
LEARNING_RATE = 0.1
WARM_UP = 5
TORCH_SCHEDULES = {
    "1F1B, 2 stages": Schedule1F1B,
    "interleaved 1F1B, 4 stages": ScheduleInterleaved1F1B,
    "interleaved zero bubble, 4 stages": ScheduleInterleavedZeroBubble,
}


@dataclass(frozen=True)
class Size:
    """How big the model is: 4 equal parts, each of attention and feed-forward."""

    name: str
    hidden_size: int
    sequence_length: int


SIZES = (Size("small", 64, 32), Size("large", 192, 64))


class Side(NamedTuple):
    """One executor's time of one step, in ns.

    wall_ns: on the slower rank. cpu_ns: of all threads of both ranks. compute_ns: of rank 0's
    forwards, backwards and update; the rest of a step is messages, waiting and own work.
    """

    wall_ns: int
    cpu_ns: int
    compute_ns: int


class Pair(NamedTuple):
    """A step under each, one right after the other."""

    evener: Side
    torch: Side


@dataclass(frozen=True)
class Row:
    """One comparison: medians over all pairs. difference: largest one between parameters."""

    size: str
    schedule: str
    evener: Side
    torch: Side
    paired_ratio: float  # of neighbouring steps, which a drifting load disturbs less
    difference: float

    @classmethod
    def of(cls, size: str, schedule: str, pairs: Sequence[Pair], difference: float) -> "Row":
        evener, torch_ = (
            Side(*(int(median(values)) for values in zip(*sides, strict=True)))
            for sides in zip(*pairs, strict=True)
        )
        paired = median(pair.evener.wall_ns / pair.torch.wall_ns for pair in pairs)
        return cls(size, schedule, evener, torch_, paired, difference)

    @property
    def ratio(self) -> float:
        return self.evener.wall_ns / self.torch.wall_ns

    def __str__(self) -> str:
        sides = "   ".join(
            f"{name} {side.wall_ns / 1e6:7.2f} ms = {side.compute_ns / 1e6:7.2f} compute "
            f"+ {(side.wall_ns - side.compute_ns) / 1e6:6.2f} else"
            for name, side in (("evener", self.evener), ("torch", self.torch))
        )
        return (
            f"{self.size:5} {self.schedule:34} {sides}   ratio {self.ratio:.3f} (of pairs "
            f"{self.paired_ratio:.3f}, of CPU {self.evener.cpu_ns / self.torch.cpu_ns:.3f})   "
            f"parameters differ by {self.difference:.1e}"
        )


def model_of(size: Size) -> ModelSpec:
    """Embedding and first block, two blocks, last block and head: 4 stages of 2 layers or more."""
    return ModelSpec.model_validate(
        {
            "name": size.name,
            "hidden_size": size.hidden_size,
            "vocabulary_size": 256,
            "pattern": "embedding 4 x (attention mlp) head",
            "layer": {
                "embedding": {"kind": "embedding"},
                "attention": {
                    "kind": "attention",
                    "num_heads": 4,
                    "head_dim": size.hidden_size // 4,
                },
                "mlp": {"kind": "mlp", "intermediate_size": 3 * size.hidden_size},
                "head": {"kind": "head"},
            },
        }
    )


def partition_of(num_stages: int) -> tuple[tuple[int, int], ...]:
    return ((0, 5), (5, 10)) if num_stages == 2 else ((0, 3), (3, 5), (5, 7), (7, 10))


def schedule_of(torch_schedule: Any) -> Schedule:
    """Torch's order of compute actions as a schedule of ours."""
    if isinstance(torch_schedule, Schedule1F1B):
        return one_f_one_b(ScheduleShape(NUM_WORKERS, NUM_MICROBATCHES))
    workers = tuple(
        tuple(
            parse_action(str(each))
            for each in torch_schedule.pipeline_order[rank]
            if each is not None
        )
        for rank in range(NUM_WORKERS)
    )
    return Schedule("torch", 4, NUM_MICROBATCHES, workers)


def torch_job(kind: Any, size: Size) -> TorchJob:
    """What torch is given: stages dealt out in turn."""
    partition = partition_of(2 if kind is Schedule1F1B else 4)
    optimizer = partial(torch.optim.SGD, lr=LEARNING_RATE)
    return TorchJob(kind, model_of(size), partition, NUM_WORKERS, NUM_MICROBATCHES, optimizer)


def plan_of(schedule: Schedule, size: Size) -> Plan:
    model = model_of(size)
    return Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=partition_of(schedule.num_stages),
        devices=tuple((f"cpu:{worker}",) for worker in range(NUM_WORKERS)),
        microbatch_size=MICROBATCH_SIZE,
        sequence_length=size.sequence_length,
        job=JobSpec.model_validate(
            {
                "global_batch_sequences": NUM_MICROBATCHES * MICROBATCH_SIZE,
                "sequence_length": size.sequence_length,
                "optimizer": {"kind": "sgd", "learning_rate": LEARNING_RATE},
            }
        ),
        schedule=schedule,
    )


class UnderEvener:
    """The model under Evener on one rank."""

    def __init__(self, plan: Plan, size: Size, transport: TorchTransport) -> None:
        self.trainer = Trainer(plan, model_of(size), transport)
        program = WorkerProgram(plan.lowered(), transport.worker)
        self._computes = [
            step.position for step in program if RULES[step.action.kind].stream is Stream.COMPUTE
        ]

    def step(self, batch: dict[str, Tensor]) -> None:
        self.trainer.step(batch)

    @property
    def compute_ns(self) -> int:
        clock = self.trainer._step_loop(0, 1, False).clock
        return sum(clock.end_ns[place] - clock.start_ns[place] for place in self._computes)

    def parameters(self) -> list[Tensor]:
        return list(self.trainer.model.parameters.values())


def batches(size: Size) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shape = (NUM_MICROBATCHES * MICROBATCH_SIZE, size.sequence_length)
    return [
        {
            "inputs": torch.randint(256, shape, generator=generator),
            "targets": torch.randint(256, shape, generator=generator),
        }
        for _ in range(4)
    ]


def compare(
    kind_name: str, size: Size, num_steps: int, *, over_gloo: bool = False
) -> Callable[[Rank], tuple[list[Pair], float]]:
    """What every rank does: both executors in turn. Returns the pairs and the difference."""

    def work(rank: Rank) -> tuple[list[Pair], float]:
        kind = TorchTransport if over_gloo else transport_for(rank, torch.device("cpu"))
        transport = kind(
            rank.store,
            worker=rank.index,
            num_workers=NUM_WORKERS,
            pairs=[(0, 1), (1, 0)],
            groups=[(0, 1)],
        )
        theirs = UnderTorch(torch_job(TORCH_SCHEDULES[kind_name], size), rank.index)
        plan = plan_of(schedule_of(theirs.schedule), size)
        ours = UnderEvener(plan, size, transport)
        data = batches(size)
        pairs = []
        for step in range(WARM_UP + num_steps):
            order = (ours, theirs) if step % 2 else (theirs, ours)
            sides = {id(one): timed(one, data[step % len(data)], transport) for one in order}
            pairs.append(Pair(sides[id(ours)], sides[id(theirs)]))
        difference = max(
            (a - b).abs().max().item()
            for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
        )
        differences = transport.gather(difference)
        transport.close()
        return pairs[WARM_UP:], max(differences)

    return work


def timed(
    executor: "UnderEvener | UnderTorch", batch: dict[str, Tensor], transport: TorchTransport
) -> Side:
    """Run a step; all ranks start together."""
    transport.barrier()
    wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    executor.step(batch)
    own = time.perf_counter_ns() - wall_ns, time.process_time_ns() - cpu_ns
    of_ranks = transport.gather((*own, executor.compute_ns))
    walls_ns, cpus_ns, computes_ns = zip(*of_ranks, strict=True)
    return Side(max(walls_ns), sum(cpus_ns), computes_ns[0])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="pairs of steps in each launch")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--gloo", action="store_true", help="Evener's messages through gloo too")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for size in SIZES:
        for kind_name in TORCH_SCHEDULES:
            pairs, differences = [], []
            for _ in range(chosen.launches):  # where the weights happen to lie in memory matters
                work = compare(kind_name, size, chosen.steps, over_gloo=chosen.gloo)
                found, difference = run_workers(work, NUM_WORKERS, timeout_s=600)[0]
                pairs += found
                differences.append(difference)
            rows.append(Row.of(size.name, kind_name, pairs, max(differences)))
            if not chosen.json:
                print(rows[-1], flush=True)
    if chosen.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=1))


if __name__ == "__main__":
    main()
