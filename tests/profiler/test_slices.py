"""Latencies of slices: what is run, and what is added up."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from evener.errors import UsageError
from evener.planner.slicing.terapipe import slices_from_table
from evener.profiler.measure import bench_of
from evener.profiler.options import MeasureOptions
from evener.profiler.slices import (
    measure_slice_latency,
    slice_latencies,
    slice_latency,
)
from evener.spec.job import JobSpec
from evener.spec.layers import MambaSpec
from evener.spec.model import ModelSpec

FEW = MeasureOptions(rounds=3, warm_up_rounds=1)
Result = TypeVar("Result")


class Counter:
    """A stopwatch on which everything takes 1 ns."""

    def __init__(self) -> None:
        self.num_timed = 0

    def time(self, work: Callable[[], Result]) -> tuple[Result, int]:
        self.num_timed += 1
        return work(), 1


def test_layers_of_all_kinds_are_added_up(model: ModelSpec, job: JobSpec) -> None:
    bench = bench_of(model, job, [2], source=None, options=FEW)
    watch = Counter()
    latency_ns = slice_latency(bench, 2, 4, watch)
    # 1 ns forward and 1 ns backward for each layer, wherever the slice is.
    expected = 2 * len(model.layers) * np.triu(np.ones((5, 5), dtype=np.int64), 1)
    assert latency_ns.tolist() == expected.tolist()
    # Attention is timed for all 10 slices, the other 3 kinds for each of 4 lengths; forward and
    # backward, 4 times.
    assert watch.num_timed == 2 * 4 * (10 + 3 * 4)


def test_a_measured_table_cuts_a_sequence(model: ModelSpec, job: JobSpec) -> None:
    latency_ns = measure_slice_latency(model, job, microbatch_size=1, num_units=2, options=FEW)
    assert (latency_ns[np.triu_indices(3, 1)] > 0).all()
    assert (latency_ns[np.tril_indices(3)] == 0).all()
    lengths = slices_from_table(
        latency_ns,
        num_tokens=job.sequence_length,
        num_stages=2,
        num_microbatches=1,
        most_slices=2,
    )
    assert sum(lengths) == job.sequence_length


def test_a_profile_is_told_a_triangle(model: ModelSpec, job: JobSpec) -> None:
    found = slice_latencies(model, job, [1, 2], options=FEW)
    assert [each.microbatch_size for each in found] == [1, 2]
    # 4 tokens are 4 parts.
    assert [list(map(len, each.latency_ns)) for each in found] == [[4, 3, 2, 1]] * 2
    assert all(time_ns > 0 for each in found for row in each.latency_ns for time_ns in row)
    assert slice_latencies(stateful(model), job, [1], options=FEW) == ()


def stateful(model: ModelSpec) -> ModelSpec:
    """The model with Mamba in place of attention."""
    layers = model.layer_configs | {"attention": MambaSpec(num_heads=2, head_dim=4, state_size=2)}
    facts = {name: getattr(model, name) for name in ModelSpec.model_fields}
    return ModelSpec(**(facts | {"layer_configs": layers}))


def test_layers_that_need_whole_sequences_are_refused(model: ModelSpec, job: JobSpec) -> None:
    with pytest.raises(UsageError, match="its state runs through all tokens of a sequence"):
        measure_slice_latency(stateful(model), job, microbatch_size=1, num_units=2, options=FEW)
