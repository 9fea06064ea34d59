"""The forty problems on which AdaPtis' own tuner was measured, as problems for our planners.

``tests/data/octopipe_baselines.csv``: a model with measured layer times, workers, microbatches, and
the time of a message, with the step times of SimPipe in ticks of 0.01 ms.  Planned with
``problem_of``; workers have unlimited memory.
"""

import csv
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.planner.problem import Problem
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


def chosen(text: str, count: int) -> list[int]:
    """Numbers from a text such as 0-3,7."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return [number for number in numbers if number < count]
