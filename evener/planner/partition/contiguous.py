"""Contiguous partitions of a chain of layers into stages, by dynamic programming."""

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Partition: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open layer range of every stage, in order, covering each layer exactly once."""


def uniform_partition(num_layers: int, num_stages: int) -> Partition:
    """Equal numbers of layers; where they do not divide, the first stages take one more."""
    size, larger = divmod(num_layers, num_stages)
    ends = [stage * size + min(stage, larger) for stage in range(num_stages + 1)]
    return tuple(pairwise(ends))


def balanced_partition(
    time_ns: NDArray[np.int64],
    *,
    bytes_of_stage: NDArray[np.int64] | None = None,
    cap_bytes: NDArray[np.int64] | None = None,
) -> Partition | None:
    """The partition with the smallest largest stage time, ties broken by the sum of squares.

    time_ns: (stage, layer) time of a layer on the worker that holds the stage, all microbatches.
    bytes_of_stage: (stage, layer) bytes that a layer adds to the worker's peak memory.
    cap_bytes: per stage, the memory that its layers may take.
    Returns None if no partition respects the caps.  Every stage gets at least one layer.

    O(stages x layers^2), vectorised over the last cut.
    """
    num_stages, num_layers = time_ns.shape
    if num_stages > num_layers:
        return None
    largest = _smallest_bottleneck(time_ns, bytes_of_stage, cap_bytes)
    if largest is None:
        return None
    return _least_squares(time_ns, bytes_of_stage, cap_bytes, largest)


def _range_sums(row: NDArray[np.int64]) -> NDArray[np.int64]:
    """(first, end) -> sum of row[first:end]; negative where first >= end."""
    prefix = np.concatenate(([0], np.cumsum(row)))
    return prefix[None, :] - prefix[:, None]


def _stage_costs(
    stage: int,
    time_ns: NDArray[np.int64],
    bytes_of_stage: NDArray[np.int64] | None,
    cap_bytes: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    """(first, end) -> time of the stage, infinite where empty or too large."""
    num_layers = time_ns.shape[1]
    costs = _range_sums(time_ns[stage]).astype(np.float64)
    cuts = np.arange(num_layers + 1)
    costs[cuts[:, None] >= cuts[None, :]] = np.inf
    if bytes_of_stage is not None and cap_bytes is not None:
        costs[_range_sums(bytes_of_stage[stage]) > cap_bytes[stage]] = np.inf
    return costs


def _smallest_bottleneck(
    time_ns: NDArray[np.int64],
    bytes_of_stage: NDArray[np.int64] | None,
    cap_bytes: NDArray[np.int64] | None,
) -> float | None:
    num_stages, num_layers = time_ns.shape
    best = np.full(num_layers + 1, np.inf)
    best[0] = 0.0
    for stage in range(num_stages):
        costs = _stage_costs(stage, time_ns, bytes_of_stage, cap_bytes)
        best = np.maximum(best[:, None], costs).min(axis=0)
    return None if np.isinf(best[-1]) else float(best[-1])


def _least_squares(
    time_ns: NDArray[np.int64],
    bytes_of_stage: NDArray[np.int64] | None,
    cap_bytes: NDArray[np.int64] | None,
    largest: float,
) -> Partition:
    """Among the partitions whose largest stage is ``largest``, the most even one."""
    num_stages, num_layers = time_ns.shape
    scale = max(largest, 1.0)
    best = np.full(num_layers + 1, np.inf)
    best[0] = 0.0
    cut_before: list[NDArray[np.intp]] = []
    for stage in range(num_stages):
        costs = _stage_costs(stage, time_ns, bytes_of_stage, cap_bytes)
        costs[costs > largest] = np.inf
        totals = best[:, None] + (costs / scale) ** 2
        cut_before.append(totals.argmin(axis=0))
        best = totals.min(axis=0)
    ends = [num_layers]
    for cuts in reversed(cut_before):
        ends.append(int(cuts[ends[-1]]))
    ends.reverse()
    return tuple(pairwise(ends))
