"""Placements near the one that deals stages out in turn, judged without a simulation."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Placement: TypeAlias = tuple[int, ...]
"""Per stage, its worker."""

Score: TypeAlias = tuple[float, int, int]

_NUM_SWAPS = 8


def placements(
    time_ns: NDArray[np.int64], num_workers: int, random: np.random.Generator
) -> dict[Placement, Score]:
    """Placements that leave no worker without a stage, each with its score; smaller is better.

    time_ns: per stage. random: for a few swaps.

    The one that deals stages out in turn; each stage of it with any other worker; what moving
    stages from the fullest to the emptiest worker makes of it, as long as loads get more even; and
    two stages with their workers exchanged.  Where two neighbour stages share a worker, each of
    these is there with the second one on the emptiest worker as well.
    """
    in_turn = [stage % num_workers for stage in range(len(time_ns))]
    found: dict[Placement, Score] = {}
    for workers in _near(time_ns, in_turn, num_workers, random):
        for placement in (tuple(workers), _dispersed(time_ns, workers, num_workers)):
            if placement not in found and len(set(placement)) == num_workers:
                found[placement] = _score(time_ns, placement, num_workers)
    return found


def _score(time_ns: NDArray[np.int64], workers: Placement, num_workers: int) -> Score:
    """Variance of the loads, neighbour stages that share a worker, largest load."""
    load_ns = _loads(time_ns, workers, num_workers)
    return float(load_ns.var()), _num_shared(workers), int(load_ns.max())


def _num_shared(workers: Placement) -> int:
    return sum(one == other for one, other in pairwise(workers))


def _near(
    time_ns: NDArray[np.int64],
    in_turn: list[int],
    num_workers: int,
    random: np.random.Generator,
) -> Iterator[list[int]]:
    yield in_turn
    yield _balanced(time_ns, in_turn, num_workers)
    num_stages = len(in_turn)
    for stage in range(num_stages):
        for worker in range(num_workers):
            yield [*in_turn[:stage], worker, *in_turn[stage + 1 :]]
    for one, other in random.integers(num_stages, size=(_NUM_SWAPS, 2)).tolist():
        swapped = list(in_turn)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        yield swapped


def _balanced(time_ns: NDArray[np.int64], workers: Sequence[int], num_workers: int) -> list[int]:
    """Move the stage whose move evens the fullest and the emptiest worker most, while one does."""
    moved = np.array(workers)
    while True:
        load_ns = _loads(time_ns, moved, num_workers)
        fullest, emptiest = int(load_ns.argmax()), int(load_ns.argmin())
        own = np.flatnonzero(moved == fullest)
        left_ns = np.abs(load_ns[fullest] - load_ns[emptiest] - 2 * time_ns[own])
        best = int(left_ns.argmin())
        if left_ns[best] >= load_ns[fullest] - load_ns[emptiest]:
            return [int(worker) for worker in moved]
        moved[own[best]] = emptiest


def _dispersed(time_ns: NDArray[np.int64], workers: Sequence[int], num_workers: int) -> Placement:
    """Of two neighbour stages on one worker, the second goes to the emptiest that has neither."""
    moved = list(workers)
    for stage in range(1, len(moved)):
        if moved[stage] != moved[stage - 1]:
            continue
        load_ns = _loads(time_ns, moved, num_workers)
        beside = {*moved[stage - 1 : stage], *moved[stage + 1 : stage + 2]}
        free = [worker for worker in range(num_workers) if worker not in beside]
        if free:
            moved[stage] = min(free, key=lambda worker: int(load_ns[worker]))
    return tuple(moved)


def _loads(
    time_ns: NDArray[np.int64], workers: Sequence[int] | NDArray[np.int64], num_workers: int
) -> NDArray[np.int64]:
    load_ns = np.zeros(num_workers, dtype=np.int64)
    np.add.at(load_ns, np.asarray(workers), time_ns)
    return load_ns
