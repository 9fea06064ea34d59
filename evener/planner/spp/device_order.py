"""An order of devices in which neighbours are well connected, by recursive minimum cuts.

SPP, section on recursive device ordering; the cut is that of Stoer and Wagner, "A simple min-cut
algorithm", Journal of the ACM 44(4), 1997.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.int64]


def device_order(weights: Weights) -> list[int]:
    """Cut the devices in two where the least bandwidth is lost, and order both parts so.

    weights: [device, device], symmetric, larger between devices that are connected better.

    Of the two parts the one with the smallest device comes first.  O(devices^4) at worst.
    """
    return _ordered(weights, list(range(len(weights))))


def _ordered(weights: Weights, devices: list[int]) -> list[int]:
    if len(devices) == 1:
        return devices
    part = minimum_cut(weights[np.ix_(devices, devices)])
    inside = [devices[index] for index in part]
    outside = [device for device in devices if device not in set(inside)]
    parts = sorted((inside, outside))
    return _ordered(weights, parts[0]) + _ordered(weights, parts[1])


def minimum_cut(weights: Weights) -> Sequence[int]:
    """One side of the partition into two parts with the least weight between them, sorted.

    weights: [node, node], symmetric, of at least two nodes.  Of equal cuts the first that is found.
    """
    left = weights.astype(object)  # sums of large weights must not overflow
    np.fill_diagonal(left, 0)
    merged = [[node] for node in range(len(weights))]
    best_weight, best = None, merged[0]
    alive = list(range(len(weights)))
    while len(alive) > 1:
        *_, before, last = sequence = _by_connection(left, alive)
        weight = left[last, [node for node in sequence if node != last]].sum()
        if best_weight is None or weight < best_weight:
            best_weight, best = weight, merged[last]
        merged[before] = merged[before] + merged[last]
        left[before] += left[last]
        left[:, before] += left[:, last]
        left[before, before] = 0
        alive.remove(last)
    return sorted(best)


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
