"""The latencies that TeraPipe's dynamic programme reads, measured slice by slice.

Li et al., "TeraPipe", ICML 2021 (arXiv 2102.07988), section 3.3.  The paper measures slices without
context and fits how context adds to them; here every slice is run behind its context.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evener.cost.profile import SliceLatency
from evener.errors import UsageError
from evener.modules.keyed_rng import KeyedGenerators
from evener.modules.layers import LayerSource
from evener.modules.slice_context import Past, SliceContext
from evener.modules.sliceable import require_sliceable, takes_slice_context
from evener.modules.stage import Draw, as_leaves
from evener.modules.values import Microbatch, Value, flatten, is_differentiable
from evener.planner.slicing.work import boundaries
from evener.profiler.bench import Bench
from evener.profiler.measure import bench_of
from evener.profiler.options import FEWEST_ROUNDS, MeasureOptions
from evener.profiler.peers import Alone, Peers
from evener.profiler.probe import Probe
from evener.profiler.timing import Stopwatch, median_ns, one_thread, stopwatch
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

_MOST_PARTS = 16
"""Equal parts of a sequence, for a table of 136 slices."""


def measure_slice_latency(
    model: ModelSpec,
    job: JobSpec,
    *,
    microbatch_size: int,
    num_units: int,
    source: LayerSource | nn.Module | Sequence[nn.Module] | None = None,
    options: MeasureOptions | None = None,
) -> NDArray[np.int64]:
    """Time forward and backward of all layers of the model on every slice of a sequence.

    num_units: equal parts of the sequence between which slices begin and end.
    source: see ``measure_model``.

    Returns int64[first, last], nanoseconds of the slice between two boundaries, 0 to ``num_units``;
    0 unless first < last.  ``planner.slicing.terapipe.slices_from_table`` cuts by it.

    Raises UsageError for a layer that cannot be sliced, and what ``measure_model`` raises.
    """
    options = MeasureOptions() if options is None else options
    bench = bench_of(model, job, [microbatch_size], source=source, options=options)
    with one_thread(options.device), KeyedGenerators(options.device).preserved():
        return slice_latency(bench, microbatch_size, num_units, stopwatch(options.device))


def slice_latencies(
    model: ModelSpec,
    job: JobSpec,
    microbatch_sizes: Sequence[int],
    *,
    source: LayerSource | nn.Module | Sequence[nn.Module] | None = None,
    options: MeasureOptions | None = None,
    peers: Peers | None = None,
) -> tuple[SliceLatency, ...]:
    """What a profile says of slices, for all microbatch sizes; see ``measure_model`` for the rest.

    Times are medians over the workers of the first one's type.  Nothing is said of models whose
    layers need whole sequences.
    """
    options = MeasureOptions() if options is None else options
    options = replace(options, rounds=FEWEST_ROUNDS, warm_up_rounds=1)
    peers = Alone() if peers is None else peers
    num_parts = min(_MOST_PARTS, job.sequence_length)
    found = []
    for size in microbatch_sizes:
        measured = partial(measure_slice_latency, model, job, source=source, options=options)
        try:
            table = measured(microbatch_size=size, num_units=num_parts)
        except UsageError:  # such as layers that need whole sequences; the planner says which
            return ()
        told = peers.gather((options.device_type, table))
        alike = [own for device_type, own in told if device_type == told[0][0]]
        times_ns = np.median(np.stack(alike), axis=0).astype(np.int64)
        rows = tuple(tuple(times_ns[i, i + 1 :].tolist()) for i in range(num_parts))
        found.append(
            SliceLatency(
                microbatch_size=size,
                sequence_length=job.sequence_length,
                latency_ns=rows,
                device_type=told[0][0],
            )
        )
    return tuple(found)


def slice_latency(
    bench: Bench, microbatch_size: int, num_units: int, watch: Stopwatch
) -> NDArray[np.int64]:
    """``measure_slice_latency`` of a bench, with a stopwatch."""
    require_sliceable({each.kind: each.module for each in bench.subjects.values()})
    ends = boundaries(bench.job.sequence_length, num_units)
    num_layers = Counter(layer.config for layer in bench.model.layers)
    probes = [_SlicedProbe(bench, probe, watch) for probe in bench.probes(microbatch_size)]
    latency_ns = np.zeros((len(ends), len(ends)), dtype=np.int64)
    for first, last in combinations(range(len(ends)), 2):
        for probe in probes:
            own_ns = probe.time_ns(ends[first], ends[last])
            latency_ns[first, last] += num_layers[probe.kind] * own_ns
    return latency_ns


class _SlicedProbe:
    """One layer that is run on slices of what enters it."""

    def __init__(self, bench: Bench, probe: Probe, watch: Stopwatch) -> None:
        self.kind = probe.subject.kind
        self._stage = probe.subject.plain
        self._learns = probe.subject.index > 0
        self._loss = probe.subject.loss
        self._sees_context = takes_slice_context(probe.subject.module)
        self._arrival = probe.arrival
        self._length = bench.job.sequence_length
        self._device = bench.options.device
        self._draw = Draw(bench.job.seed, 0, KeyedGenerators(self._device))
        self._rounds = (bench.options.warm_up_rounds, bench.options.rounds)
        self._watch = watch
        self._known: dict[tuple[int, int], int] = {}

    def time_ns(self, first: int, last: int) -> int:
        """The median of forward and backward on a slice of tokens, behind all tokens before it."""
        if not self._sees_context:
            first, last = 0, last - first
        if (first, last) not in self._known:
            warm_up, rounds = self._rounds
            samples = [self._sample_ns(first, last) for _ in range(warm_up + rounds)]
            self._known[first, last] = median_ns(samples[warm_up:])
        return self._known[first, last]

    def _sample_ns(self, first: int, last: int) -> int:
        past = Past(self._length)
        if first > 0 and self._sees_context:
            context = SliceContext(past, 0, first)
            value, _ = self._leaves(0, first, learns=False)
            with torch.no_grad():
                self._compute(value, self._part(0, first) | {"slice_context": context})
            context.close()
        context = SliceContext(past, first, last - first)
        value, leaves = self._leaves(first, last, learns=self._learns)
        part = self._part(first, last) | {"slice_context": context}
        output, forward_ns = self._watch.time(lambda: self._compute(value, part))
        outputs = flatten(output)[1]
        cell = self._stage.begin_pass(leaves, outputs, is_loss=self._loss is not None)
        self._stage.lead_to(cell, context.close())
        gradients = [torch.ones_like(each) for each in outputs if is_differentiable(each)]
        received = [*gradients, *context.gradients()]
        _, backward_ns = self._watch.time(lambda: self._stage.backward(cell, received))
        return forward_ns + backward_ns

    def _compute(self, value: Value, part: Microbatch) -> Value:
        with self._stage.computing(self._device):
            output = self._stage(value, part, self._draw, 0)
            if self._loss is None:
                return output
            return self._loss.total(output, part) * self._arrival.scale

    def _leaves(self, first: int, last: int, *, learns: bool) -> tuple[Value, list[Tensor]]:
        skeleton, tensors = flatten(self._arrival.value)
        return as_leaves(skeleton, [self._cut(each, first, last) for each in tensors], learns)

    def _part(self, first: int, last: int) -> dict[str, Any]:
        return {
            name: self._cut(value, first, last) if isinstance(value, Tensor) else value
            for name, value in self._arrival.microbatch.items()
        }

    def _cut(self, tensor: Tensor, first: int, last: int) -> Tensor:
        """Its tokens along dimension 1, if it has any; memory of its own, as if received."""
        if tensor.dim() < 2 or tensor.shape[1] != self._length:
            return tensor
        return tensor[:, first:last].clone()
