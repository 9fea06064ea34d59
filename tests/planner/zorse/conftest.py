"""Fleets with the measured layer times of the published profiles."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from evener.planner.zorse.fleet import Fleet, Gpu, LayerFit, LayerTime, MachineLink

DATA = Path(__file__).parents[2] / "data"
GIB = 2**30
MEMORY_GIB = {"a6000": 47.99, "l4": 22.5, "p40": 22.5}


def read(name: str) -> list[dict[str, str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


Fits = Callable[[str, int], dict[str, LayerFit]]


@pytest.fixture(name="fits")
def fixture_of_fits() -> Fits:
    """By model and sequence length."""
    return layer_fits


def layer_fits(model: str, sequence_length: int) -> dict[str, LayerFit]:
    """By type of GPU, in fp16."""
    return {
        row["gpu"]: LayerFit(
            (float(row["fwd_slope_ms"]), float(row["fwd_intercept_ms"])),
            (float(row["bwd_slope_ms"]), float(row["bwd_intercept_ms"])),
        )
        for row in read("zorse_layer_fits.csv")
        if (row["model"], row["seq"], row["dtype"]) == (model, str(sequence_length), "fp16")
    }


@pytest.fixture
def shipped_example() -> Fleet:
    """One machine with two L4, an A6000 and a P40, 11.08 GB/s between them."""
    measured: dict[str, list[LayerTime]] = {}
    for row in read("zorse_example_times.csv"):
        time = LayerTime(float(row["forward_ms"]), float(row["backward_ms"]))
        measured.setdefault(row["gpu"], []).append(time)
    lines = layer_fits("llama_tiny", 512)
    return Fleet(
        gpus=tuple(
            Gpu("only", kind, int(MEMORY_GIB[kind] * GIB)) for kind in ("l4", "l4", "a6000", "p40")
        ),
        links={("only", "only"): MachineLink(11.08e9, 0.004)},
        layers={
            kind: LayerFit(lines[kind].forward, lines[kind].backward, tuple(times))
            for kind, times in measured.items()
        },
    )
