"""Groups of GPUs by SPLIT, the approximation of a minimum k-cut that Zorse plans with.

Saran and Vazirani, "Finding k-cuts within twice the optimal", 1995: cut the lightest global
minimum cut of any part, until there are k parts; no more than 2 - 2/k times the best cut.
"""

from itertools import permutations

import numpy as np

from evener.planner.minimum_cut import Weights, minimum_cut
from evener.planner.zorse.fleet import Fleet

_BYTES_PER_WEIGHT = 1e9


def split_groups(fleet: Fleet, num_groups: int) -> tuple[tuple[int, ...], ...]:
    """The GPUs in so many groups, between which links are slow; each group in ascending order.

    num_groups: no more than there are GPUs.

    A link weighs its gigabytes per second, rounded down, and no less than 1. Source: section 4.
    """
    weights = _weights(fleet)
    parts = [list(range(len(fleet.gpus)))]
    while len(parts) < num_groups:
        cuts = [
            (minimum_cut(weights[np.ix_(part, part)]), number)
            for number, part in enumerate(parts)
            if len(part) > 1
        ]
        cut, number = min(cuts, key=lambda each: (each[0].weight, each[1]))
        whole = parts.pop(number)
        half = [whole[index] for index in cut.side]
        parts += [half, [gpu for gpu in whole if gpu not in set(half)]]
    return tuple(sorted(map(tuple, parts)))


def _weights(fleet: Fleet) -> Weights:
    weights: Weights = np.zeros((len(fleet.gpus), len(fleet.gpus)), dtype=np.int64)
    for a, b in permutations(range(len(fleet.gpus)), 2):
        link = fleet.link(fleet.gpus[a].machine, fleet.gpus[b].machine)
        weights[a, b] = max(1, int(link.bytes_per_s / _BYTES_PER_WEIGHT))
    return weights
