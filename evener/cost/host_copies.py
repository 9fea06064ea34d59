"""What it costs to move activations to host memory and back."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evener.cost.network import NS_PER_S, send_ns
from evener.cost.table import KIND_INDEX, CostTable
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource
from evener.ir.schedule import Cell, Schedule
from evener.spec.cluster import Link


def with_host_copies(
    costs: CostTable,
    schedule: Schedule,
    *,
    links: Sequence[Link],
    num_bytes: Sequence[int] | None = None,
) -> CostTable:
    """The table with the times of OFFLOAD and RELOAD, and the bytes that FREE gives back.

    links: per worker, to the memory of its host; both directions at once are as fast as one.
    num_bytes: per stage, how much of a cell's activations leaves; None means all of them. Cells
        that are recomputed offload all that is left of them, their checkpoint.

    Where all leaves and slices differ, the largest makes the time and the smallest the memory.
    """
    whole = [_sizes(costs.memory, Resource.ACTIVATION, s) for s in range(costs.num_stages)]
    copied = list(map(max, whole)) if num_bytes is None else list(num_bytes)
    for stage, mixed in _recomputed(schedule).items():
        checkpoint = max(_sizes(costs.memory, Resource.CHECKPOINT, stage))
        copied[stage] = max(checkpoint, copied[stage]) if mixed else checkpoint
    leaves = tuple(map(min, whole)) if num_bytes is None else tuple(num_bytes)
    memory = _with_offloaded(costs.memory, leaves)
    copy_ns: NDArray[np.int64] = np.array(
        [[send_ns(size, link) for size in copied] for link in links], dtype=np.int64
    )
    time_ns, slices = costs.time_ns.copy(), costs.slices
    kinds = [KIND_INDEX[Kind.OFFLOAD], KIND_INDEX[Kind.RELOAD]]
    time_ns[:, :, kinds] = copy_ns[:, :, None]
    if slices is not None:
        of_slices_ns = slices.time_ns.copy()
        of_slices_ns[:, :, kinds] = copy_ns[:, :, None, None]
        slices = replace(slices, time_ns=of_slices_ns)
    return replace(costs, time_ns=time_ns, slices=slices, memory=memory)


def _recomputed(schedule: Schedule) -> dict[int, bool]:
    """The stages with a cell that is recomputed, and whether others of them are offloaded."""
    cells: dict[Kind, set[Cell]] = {Kind.R: set(), Kind.OFFLOAD: set()}
    for _, (stage, kind, microbatch, token_slice, _, _) in schedule.actions():
        if kind in cells and microbatch is not None:
            cells[kind].add((stage, microbatch, token_slice))
    others = {stage for stage, _, _ in cells[Kind.OFFLOAD] - cells[Kind.R]}
    return {stage: stage in others for stage, _, _ in cells[Kind.R]}


def _with_offloaded(memory: MemoryTable, leaves: tuple[int, ...]) -> MemoryTable:
    per_slice = dict(memory.per_slice)
    per_slice.pop(Resource.OFFLOADED, None)
    per_stage = {**memory.per_stage, Resource.OFFLOADED: leaves}
    return replace(memory, per_stage=per_stage, per_slice=per_slice)


def _sizes(memory: MemoryTable, resource: Resource, stage: int) -> tuple[int, ...]:
    """Of a cell of the stage: one size, or one for each slice."""
    if resource in memory.per_slice:
        return memory.per_slice[resource][stage]
    return (memory.size_bytes(resource, stage),)


def bytes_within(window_ns: int, link: Link) -> int | None:
    """The most that can be copied in this time; None if the link has no limit."""
    if link.bytes_per_s == 0:
        return None if window_ns >= link.latency_ns else 0
    return max(0, window_ns - link.latency_ns) * link.bytes_per_s // NS_PER_S
