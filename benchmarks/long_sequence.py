"""One long sequence through two processes, whole and in slices of tokens.

    python -m benchmarks.long_sequence [--tokens 4096] [--slices 8] [--rounds 5] [--json]

Time: a step of one sequence (forward, backward, SGD) under 1F1B, which has nothing to overlap, and
under Seq1F1B (slices of equal operations) and TeraPipe (slices by its dynamic programme over
latencies that are measured here first).  Every worker holds one sequence at its peak under each of
them, which is measured, too.  All run in the same two processes, one thread each, and take turns
step by step.  Their gradients must agree.

Memory: two sequences under SlimPipe; the most bytes of saved activations that are alive on rank 0,
against (1 + 2(p-1)/n) M_a/p, where M_a/p is what a whole sequence keeps on rank 0.

Ends with exit code 1 if a sliced schedule is not faster than 1F1B, keeps more, or has other
gradients, or if SlimPipe's peak is 10 % or more away from its formula.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import torch
from torch import Tensor

from evener.cost.flops import slice_flops
from evener.executor.launch import Rank, run_workers
from evener.executor.live_bytes import LiveBytes
from evener.executor.shared_memory import connect
from evener.executor.train import Trainer
from evener.ir.plan import Plan
from evener.planner.slicing.flop_balanced import flop_balanced_slices
from evener.planner.slicing.terapipe import slices_from_table
from evener.planner.slicing.work import SliceWork
from evener.profiler.options import MeasureOptions
from evener.profiler.slices import measure_slice_latency
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

NUM_WORKERS = 2
WIDTH = 256
VOCABULARY_SIZE = 512
NUM_BLOCKS = 4
TOLERANCE = 1e-3
"""Of gradients in float32, relative to the largest."""

Lengths = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One schedule: medians over the rounds, bytes of rank 0.

    speedup: of neighbouring steps over 1F1B. difference: of gradients, relative.
    """

    schedule: str
    slice_tokens: Lengths
    step_s: float
    speedup: float
    peak_bytes: int
    difference: float

    def __str__(self) -> str:
        return (
            f"{self.schedule:<12} {self.step_s:6.2f} s  {self.speedup:5.2f} times as fast as 1F1B  "
            f"{self.peak_bytes / 2**20:6.1f} MiB alive on rank 0  gradients differ by "
            f"{self.difference:.0e}  slices {' '.join(map(str, self.slice_tokens))}"
        )


def model() -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "name": "long",
            "hidden_size": WIDTH,
            "vocabulary_size": VOCABULARY_SIZE,
            "pattern": f"embedding {NUM_BLOCKS} x block head",
            "layer": {
                "embedding": {"kind": "embedding"},
                "block": {
                    "kind": "block",
                    "mixer": {
                        "kind": "attention",
                        "num_heads": 8,
                        "num_kv_heads": 2,
                        "head_dim": WIDTH // 8,
                    },
                    "feedforward": {
                        "kind": "mlp",
                        "intermediate_size": 4 * WIDTH,
                        "gated": False,
                        "activation": "gelu",
                    },
                },
                "head": {"kind": "head"},
            },
        }
    )


def plan_of(name: str, num_sequences: int, lengths: Lengths) -> Plan:
    spec, num_tokens = model(), sum(lengths)
    shape = ScheduleShape(NUM_WORKERS, num_sequences, num_slices=len(lengths))
    middle = 1 + NUM_BLOCKS // 2
    return Plan(
        model=spec.name,
        model_fingerprint=spec.fingerprint(),
        layer_names=tuple(layer.name for layer in spec.layers),
        partition=((0, middle), (middle, NUM_BLOCKS + 2)),
        devices=tuple((f"cpu:{worker}",) for worker in range(NUM_WORKERS)),
        microbatch_size=1,
        sequence_length=num_tokens,
        slice_tokens=lengths if len(lengths) > 1 else None,
        job=JobSpec.model_validate(
            {
                "global_batch_sequences": num_sequences,
                "sequence_length": num_tokens,
                "dtypes": dict.fromkeys(
                    ("parameters", "gradients", "optimizer", "activations"), "float32"
                ),
                "optimizer": {"kind": "sgd", "learning_rate": 0.0},
            }
        ),
        schedule=SCHEDULES[name](shape),
    )


def batch_of(plan: Plan) -> dict[str, Tensor]:
    shape = (2, plan.job.num_sequences, plan.sequence_length)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randint(VOCABULARY_SIZE, shape, generator=generator)
    return {"inputs": inputs, "targets": targets}


def work_of(num_tokens: int) -> SliceWork:
    """What is asked of slices with equal operations."""
    spec = model()

    def flops(first: int, tokens: int) -> int:
        found = (
            slice_flops(spec, layer.spec, first_token=first, num_tokens=tokens)
            for layer in spec.layers
        )
        return sum(each.matrices + each.products for each in found)

    return SliceWork(
        num_tokens=num_tokens,
        num_stages=NUM_WORKERS,
        num_microbatches=1,
        flops=flops,
        latency_ns=flops,
        grid=num_tokens // 64,
    )


def measured_slices(plan: Plan, most_slices: int) -> Lengths:
    """TeraPipe's, between eighths of the sequence, over latencies that are measured here."""
    latency_ns = measure_slice_latency(
        model(),
        plan.job,
        microbatch_size=1,
        num_units=8,
        options=MeasureOptions(rounds=3, warm_up_rounds=1),
    )
    return slices_from_table(
        latency_ns,
        num_tokens=plan.sequence_length,
        num_stages=NUM_WORKERS,
        num_microbatches=1,
        most_slices=most_slices,
    )


@dataclass
class Side:
    """A trainer of one rank, and its gradients of the last step."""

    trainer: Trainer
    batch: dict[str, Tensor]
    gradients: dict[str, Tensor]

    @classmethod
    def of(cls, plan: Plan, transport: object) -> "Side":
        trainer = Trainer(plan, model(), transport)  # type: ignore[arg-type]
        gradients: dict[str, Tensor] = {}
        trainer.engine.on_gradients = lambda found: gradients.update(
            {name: each.grad.clone() for name, each in found.items() if each.grad is not None}
        )
        return cls(trainer, batch_of(plan), gradients)

    def step_s(self) -> float:
        """Run a step; all ranks start together. Seconds of the slowest rank."""
        transport = self.trainer.transport
        transport.barrier()
        start = time.perf_counter()
        self.trainer.step(self.batch)
        return max(transport.gather(time.perf_counter() - start))

    def difference(self, other: "Side") -> float:
        largest = max(each.abs().max().item() for each in other.gradients.values())
        apart = max(
            (each - other.gradients[name]).abs().max().item()
            for name, each in self.gradients.items()
        )
        return max(self.trainer.transport.gather(apart / largest))


def peak_bytes_of(plan: Plan, transport: object) -> int:
    """The most bytes of saved activations that are alive on this rank in a step."""
    side = Side.of(plan, transport)
    live = LiveBytes(side.trainer.engine)
    side.step_s()
    return live.peak_bytes


def compare(
    timed: Mapping[str, Lengths], slim: Lengths, num_rounds: int
) -> Callable[[Rank], tuple[list[Row], int]]:
    """What every rank does. Returns the rows, and the peak of SlimPipe in bytes."""

    def work(rank: Rank) -> tuple[list[Row], int]:
        torch.set_num_threads(1)
        transport = connect(rank, torch.device("cpu"), [(0, 1), (1, 0)], [(0, 1)])
        plans = {name: plan_of(name, 1, lengths) for name, lengths in timed.items()}
        sides = {name: Side.of(plan, transport) for name, plan in plans.items()}
        for side in sides.values():
            side.step_s()
        rounds = [{name: side.step_s() for name, side in sides.items()} for _ in range(num_rounds)]
        whole = sides["one_f_one_b"]
        rows = [
            Row(
                name,
                timed[name],
                step_s=median(each[name] for each in rounds),
                speedup=median(each["one_f_one_b"] / each[name] for each in rounds),
                peak_bytes=peak_bytes_of(plans[name], transport),
                difference=side.difference(whole),
            )
            for name, side in sides.items()
        ]
        peak_bytes = peak_bytes_of(plan_of("slimpipe", 2, slim), transport)
        transport.close()
        return rows, peak_bytes

    return work


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    timed = {
        "one_f_one_b": (chosen.tokens,),
        "seq1f1b": flop_balanced_slices(work_of(chosen.tokens), chosen.slices),
        "terapipe": measured_slices(plan_of("one_f_one_b", 1, (chosen.tokens,)), chosen.slices),
    }
    slim = (chosen.tokens // chosen.slices,) * chosen.slices
    rows, peak_bytes = run_workers(
        compare(timed, slim, chosen.rounds), NUM_WORKERS, timeout_s=1800
    )[0]
    formula_bytes = (1 + 2 * (NUM_WORKERS - 1) / chosen.slices) * rows[0].peak_bytes
    ratio = peak_bytes / formula_bytes
    if chosen.json:
        slimpipe = {"peak_bytes": peak_bytes, "formula_bytes": formula_bytes, "ratio": ratio}
        print(json.dumps({"time": [asdict(row) for row in rows], "slimpipe": slimpipe}, indent=1))
    else:
        print(*rows, sep="\n")
        print(
            f"slimpipe, {chosen.slices} slices: {peak_bytes / 2**20:.1f} MiB alive on rank 0, "
            f"{formula_bytes / 2**20:.1f} MiB by its formula, ratio {ratio:.3f}"
        )
    whole, *sliced = rows
    if abs(ratio - 1) >= 0.1 or any(
        row.speedup <= 1 or row.difference > TOLERANCE or row.peak_bytes > 1.01 * whole.peak_bytes
        for row in sliced
    ):
        sys.exit(1)


if __name__ == "__main__":
    main()
