"""Layers and devices divided into stages; loads and channels are plain tables here."""

from itertools import combinations, pairwise
from math import inf

import numpy as np
import pytest

from evener.planner.spp.stages import Chain, divisions


def _chain(layers, num_devices, *, messages=0, most_replicas=9):
    """A stage on r devices takes its layers / r; a message takes ``messages``."""
    until = np.concatenate(([0.0], np.cumsum(layers)))
    cuts = np.arange(len(layers) + 1)

    def load(first, end):
        ranges = (until[None, :] - until[:, None]) / (end - first)
        return np.where(cuts[:, None] < cuts, ranges, inf)

    def channel(first, border, end):
        inner = np.full(len(layers) - 1, float(messages))
        return np.array([inf, *inner, inf])

    return Chain(len(layers), num_devices, most_replicas, load, channel)


def test_replicas_go_where_the_work_is():
    # 2 + 2 | 8 | on 1 and 2 devices: 4 and 4; on one stage 12 / 3 = 4 as well
    one, two, three = divisions(_chain([2, 2, 8], 3))
    assert (one.load_ns, one.partition, one.num_replicas) == (4, ((0, 3),), (3,))
    assert (two.load_ns, two.partition, two.num_replicas) == (4, ((0, 2), (2, 3)), (1, 2))
    assert (three.load_ns, three.num_replicas) == (8, (1, 1, 1))


def test_messages_are_loads_too():
    # a link that is busy for 9 decides over the stages' 4
    _, two, _ = divisions(_chain([2, 2, 8], 3, messages=9))
    assert two.load_ns == 9


def test_more_replicas_than_microbatches_are_not_used():
    assert [each.num_replicas for each in divisions(_chain([1, 1, 1], 3, most_replicas=1))] == [
        (1, 1, 1)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_no_division_has_a_smaller_largest_load(seed):
    layers = np.random.default_rng(seed).integers(1, 10, size=5).tolist()
    for found in divisions(_chain(layers, 4, messages=3)):
        stages = len(found.partition)

        def largest(cuts, borders):
            parts = pairwise([0, *cuts, 5]), pairwise([0, *borders, 4])
            loads = [sum(layers[a:b]) / (d - c) for (a, b), (c, d) in zip(*parts, strict=True)]
            return max([*loads, 3 if cuts else 0])

        assert found.load_ns == pytest.approx(
            min(
                largest(cuts, borders)
                for cuts in combinations(range(1, 5), stages - 1)
                for borders in combinations(range(1, 4), stages - 1)
            )
        )
