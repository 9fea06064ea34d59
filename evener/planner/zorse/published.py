"""Zorse's planner as published: for each number of groups, SPLIT, then the fastest plan by formula.

Source: arXiv 2507.10392, section 4, and the planner in the authors' public repository, of which
this takes the formulas and the order of choices.  In one thing it departs: the published search
asks whether the plan *without* interleaving fits into memory, and so refuses models that fit once
they are interleaved (65B on 4 H100 and 16 A100).  Here each plan is asked for itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evener.planner.zorse.fleet import Fleet, LayerTime, Transformer
from evener.planner.zorse.shares import shares
from evener.planner.zorse.split import split_groups

_GATHER_BYTES, _REDUCE_BYTES, _OPTIMIZER_BYTES = 2, 4, 12
"""Per parameter: what is gathered (fp16), what is reduced (fp32), what the optimizer keeps."""

_RESERVED_BYTES = 2 * 2**30
"""Of each GPU's memory, left free."""


@dataclass(frozen=True)
class Batch:
    """global_batch_size in sequences, sequence_length in tokens."""

    global_batch_size: int
    sequence_length: int


@dataclass(frozen=True)
class ZorsePlan:
    """groups: GPUs by index, in the order of the pipeline. microbatches: per GPU of each group.

    layers: per group, of each of its mini-stages; the first ones of all groups run first.
    """

    step_ms: float
    microbatch_size: int
    groups: tuple[tuple[int, ...], ...]
    microbatches: tuple[tuple[int, ...], ...]
    layers: tuple[tuple[int, ...], ...]


def published_plan(fleet: Fleet, model: Transformer, batch: Batch) -> ZorsePlan | None:
    """The plan with the least time by Zorse's formula; None if none fits into memory.

    Machines are counted from their number down to 1 group; microbatches are powers of two from 2.
    """
    num_machines = len({gpu.machine for gpu in fleet.gpus})
    best: ZorsePlan | None = None
    for num_groups in range(num_machines, 0, -1):
        for plan in _plans(fleet, model, batch, split_groups(fleet, num_groups)):
            if best is None or plan.step_ms < best.step_ms:
                best = plan
    return best


def _plans(
    fleet: Fleet, model: Transformer, batch: Batch, groups: tuple[tuple[int, ...], ...]
) -> Iterator[ZorsePlan]:
    """Those that fit, for given groups."""
    ordered = _ordered(fleet, model, groups)
    for power in range(1, batch.global_batch_size.bit_length() - 1):
        stages = _Stages(fleet, model, batch, ordered, 2**power)
        # A single group has nobody to wait for, so it has nothing to interleave.
        most = 1 if len(ordered) == 1 else min(model.num_layers // 2, len(ordered)) + 2
        for degree in range(1, most + 1):
            layers = stages.interleaved(degree)
            if layers is not None and stages.fits(layers):
                step_ms = stages.step_ms(layers)
                yield ZorsePlan(step_ms, 2**power, ordered, stages.microbatches, layers)


def _ordered(
    fleet: Fleet, model: Transformer, groups: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    """First the group that gathers fastest, then always the one best connected to the last."""
    num_bytes = model.num_parameters * _GATHER_BYTES
    left = sorted(groups, key=lambda group: fleet.ring_ms(group, num_bytes))
    ordered = [left.pop(0)]
    while left:
        best = max(left, key=lambda group: fleet.mean_bytes_per_s(ordered[-1], group))
        left.remove(best)
        ordered.append(best)
    return tuple(ordered)


class _Stages:
    """All that is known once groups and microbatch size are."""

    def __init__(
        self,
        fleet: Fleet,
        model: Transformer,
        batch: Batch,
        groups: tuple[tuple[int, ...], ...],
        microbatch_size: int,
    ) -> None:
        self.fleet, self.model, self.groups = fleet, model, groups
        self.boundary_bytes = 2 * microbatch_size * batch.sequence_length * model.hidden_size
        self.times = [[self._time(gpu, microbatch_size) for gpu in group] for group in groups]
        count = batch.global_batch_size // microbatch_size
        self.microbatches = tuple(
            shares(count, [1 / time.total_ms for time in times]) for times in self.times
        )
        slowest_ms = [
            max(time.total_ms * number for time, number in zip(times, numbers, strict=True))
            for times, numbers in zip(self.times, self.microbatches, strict=True)
        ]
        total = sum(1 / slow for slow in slowest_ms)
        self.speeds = [1 / slow / total for slow in slowest_ms]
        parameters = model.num_parameters
        self.gather_ms = [fleet.ring_ms(group, parameters * _GATHER_BYTES) for group in groups]
        self.reduce_ms = [fleet.ring_ms(group, parameters * _REDUCE_BYTES) for group in groups]
        self.message_ms = [
            fleet.message_ms(source, target, self.boundary_bytes)
            for source, target in pairwise(groups)
        ]

    def _time(self, gpu: int, microbatch_size: int) -> LayerTime:
        return self.fleet.layers[self.fleet.gpus[gpu].type].at(microbatch_size)

    def interleaved(self, degree: int) -> tuple[tuple[int, ...], ...] | None:
        """Layers of each group's mini-stages; None where a mini-stage would have none."""
        of_group = shares(self.model.num_layers, self.speeds)
        if min(of_group) < degree:
            return None
        chunks = [[layers // degree] * degree for layers in of_group]
        extra = sum(layers % degree for layers in of_group)
        # What does not divide goes, a mini-stage at a time, to the group that it slows least.
        ranked = sorted(
            range(len(chunks)), key=lambda group: (chunks[group][0] + 1) / self.speeds[group]
        )
        places = [(group, chunk) for group in ranked for chunk in range(degree)]
        for number in range(extra):
            group, chunk = places[number % len(places)]
            chunks[group][chunk] += 1
        return tuple(map(tuple, chunks))

    def fits(self, layers: Sequence[Sequence[int]]) -> bool:
        """Whether each group has room for its own, of which two mini-stages are not sharded."""
        return all(
            self._bytes(group, own) <= min(self.fleet.gpus[gpu].memory_bytes for gpu in group)
            for group, own in zip(self.groups, layers, strict=True)
        )

    def _bytes(self, group: tuple[int, ...], own: Sequence[int]) -> float:
        whole = max([own[0], *map(sum, pairwise(own))])
        parameters = self.model.num_parameters
        sharded = (sum(own) - whole) * _GATHER_BYTES + sum(own) * _OPTIMIZER_BYTES
        return (
            whole * parameters * _GATHER_BYTES
            + sharded * parameters / len(group)
            + 3 * self.boundary_bytes
            + _RESERVED_BYTES
        )

    def step_ms(self, layers: Sequence[Sequence[int]]) -> float:
        """The way in, then the busiest group, then the way out."""
        most = max(self._busy_ms(group, own) for group, own in enumerate(layers))
        return self._way_in_ms(layers) + most + self._way_out_ms(layers)

    def _way_in_ms(self, layers: Sequence[Sequence[int]]) -> float:
        """The first microbatch through the first mini-stages, and one mini-stage more."""
        forward_ms = [max(time.forward_ms for time in times) for times in self.times]
        first_ms = max(forward_ms[0], self.gather_ms[0])
        total_ms = layers[0][0] * first_ms
        for group in range(1, len(layers)):
            total_ms += layers[group][0] * forward_ms[group]
        if len(layers[0]) > 1:
            total_ms += layers[0][1] * forward_ms[0]
        return total_ms + sum(self.message_ms)

    def _way_out_ms(self, layers: Sequence[Sequence[int]]) -> float:
        """The last gradient through the last mini-stages, and one mini-stage more."""
        slowest_ms = [max(time.total_ms for time in times) for times in self.times]
        total_ms = layers[-1][-1] * max(slowest_ms[-1], self.reduce_ms[-1])
        for group in range(len(layers) - 1):
            total_ms += layers[group][-1] * slowest_ms[group]
        if len(layers[-1]) > 1:
            total_ms += layers[-1][-2] * slowest_ms[-1]
        return total_ms + sum(self.message_ms)

    def _busy_ms(self, group: int, own: Sequence[int]) -> float:
        """All mini-stages of a group, forward and backward, each no faster than what it gathers."""
        around = self.message_ms[max(0, group - 1) : group + 1]
        message_ms = max(around, default=0.0)
        gather_ms, reduce_ms = self.gather_ms[group], self.reduce_ms[group]
        pairs = list(zip(self.times[group], self.microbatches[group], strict=True))
        total_ms = 0.0
        for number, layers in enumerate(own):
            before = 1 if number == 0 else 0  # the first microbatch is the way in
            forward_ms = max(
                max(time.forward_ms * layers, message_ms) * (count - before)
                for time, count in pairs
            )
            # The forward is computed again before the backward.
            backward_ms = max(
                max(time.total_ms * layers, message_ms) * count for time, count in pairs
            )
            total_ms += max(forward_ms, gather_ms * layers)
            total_ms += max(backward_ms, (gather_ms + reduce_ms) * layers)
        return total_ms
