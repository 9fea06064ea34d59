"""The cut of a graph in two that loses least.

Stoer and Wagner, "A simple min-cut algorithm", Journal of the ACM 44(4), 1997.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.int64]


class Cut(NamedTuple):
    """side: the nodes on one side, ascending. weight: of all edges to the other side."""

    weight: int
    side: tuple[int, ...]


def minimum_cut(weights: Weights) -> Cut:
    """The partition into two parts with the least weight between them.

    weights: [node, node], symmetric, not negative, of at least two nodes.

    Of equal cuts the first that is found.  O(nodes^3).
    """
    left = weights.astype(object)  # sums of large weights must not overflow
    np.fill_diagonal(left, 0)
    merged = [[node] for node in range(len(weights))]
    alive = list(range(len(weights)))
    best: Cut | None = None
    while len(alive) > 1:
        *_, before, last = sequence = _by_connection(left, alive)
        weight = left[last, [node for node in sequence if node != last]].sum()
        if best is None or weight < best.weight:
            best = Cut(weight, tuple(sorted(merged[last])))
        merged[before] = merged[before] + merged[last]
        left[before] += left[last]
        left[:, before] += left[:, last]
        left[before, before] = 0
        alive.remove(last)
    assert best is not None, "a graph of one node has no cut"
    return best


def _by_connection(weights: NDArray[np.object_], alive: Sequence[int]) -> list[int]:
    """Start anywhere; next comes always what is connected best to all that are there."""
    sequence, rest = [alive[0]], list(alive[1:])
    connected = {node: weights[node, alive[0]] for node in rest}
    while rest:
        nearest = max(rest, key=lambda node: connected[node])
        rest.remove(nearest)
        sequence.append(nearest)
        for node in rest:
            connected[node] += weights[node, nearest]
    return sequence
