"""The most even contiguous partitions of a chain of layers, for every number of stages at once."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evener.planner.partition.contiguous import Partition

_WIDTH = 4
"""So many times the wanted partitions are kept at each place."""


class _Beam(NamedTuple):
    """Ways to cut the layers in front of a place into so many stages, the most even one first.

    squares: sum of the squares of the stage times. cut: where the last stage begins; rank: which of
    the ways in front of it precedes it.
    """

    squares: NDArray[np.float64]
    cut: NDArray[np.int64]
    rank: NDArray[np.int64]


def even_partitions(
    time_ns: NDArray[np.int64], *, most_stages: int, count: int
) -> list[list[Partition]]:
    """For 1, 2, ... ``most_stages`` stages, the partitions with the least variance of stage times.

    time_ns: per layer. count: how many partitions of each number of stages, where there are so
    many; the most even one comes first.

    Every stage gets at least one layer, so that there are no more stages than layers.  A beam over
    (stages used, layers used); as the total is given, the sum of squares ranks the variance.
    """
    num_layers = len(time_ns)
    assert most_stages <= num_layers, "every stage needs a layer"
    until = np.concatenate(([0], np.cumsum(time_ns))) / max(1, int(time_ns.sum()))
    nothing = _Beam(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
    start = nothing._replace(squares=np.zeros(1))
    beams = [[start, *[nothing] * num_layers]]
    for _ in range(most_stages):
        beams.append(
            [
                _extended(beams[-1][:end], (until[end] - until[:end]) ** 2, _WIDTH * count)
                for end in range(num_layers + 1)
            ]
        )
    return [
        [_walked(beams[: stages + 1], rank) for rank in range(len(beams[stages][-1].squares))][
            :count
        ]
        for stages in range(1, most_stages + 1)
    ]


def _extended(before: Sequence[_Beam], squares: NDArray[np.float64], count: int) -> _Beam:
    """The best ways to end a stage at a place. before, squares: per cut in front of it."""
    if not before:
        return _Beam(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
    sizes = [len(beam.squares) for beam in before]
    totals = np.concatenate([beam.squares for beam in before]) + np.repeat(squares, sizes)
    best = np.argsort(totals, kind="stable")[:count]
    cut = np.repeat(np.arange(len(before)), sizes)
    rank = np.concatenate([np.arange(size) for size in sizes])
    return _Beam(totals[best], cut[best], rank[best])


def _walked(beams: Sequence[Sequence[_Beam]], rank: int) -> Partition:
    """The partition that a way to the last place stands for."""
    ends = [len(beams[0]) - 1]
    for stages in range(len(beams) - 1, 0, -1):
        beam = beams[stages][ends[-1]]
        ends.append(int(beam.cut[rank]))
        rank = int(beam.rank[rank])
    return tuple(pairwise(reversed(ends)))
