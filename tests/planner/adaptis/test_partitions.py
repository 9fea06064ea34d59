"""The beam over partitions."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from evener.planner.adaptis.partitions import even_partitions


def _squares(time_ns, partition):
    return sum(sum(time_ns[first:last]) ** 2 for first, last in partition)


def test_one_layer_per_stage_leaves_one_partition():
    # 2 layers: one stage in one way, two stages in one way
    assert even_partitions(np.array([3, 1]), most_stages=2, count=4) == [
        [((0, 2),)],
        [((0, 1), (1, 2))],
    ]


def test_most_even_ones_first():
    # 5 | 1 1 1 1 1: two stages of 5 and 5 (50); then 6 and 4 (52), then 7 and 3 (58)
    _, of_two = even_partitions(np.array([5, 1, 1, 1, 1, 1]), most_stages=2, count=3)
    assert of_two == [((0, 1), (1, 6)), ((0, 2), (2, 6)), ((0, 3), (3, 6))]


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
def test_as_even_as_any(num_stages):
    time_ns = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    all_squares = sorted(
        _squares(time_ns, pairwise([0, *cuts, 8]))
        for cuts in combinations(range(1, 8), num_stages - 1)
    )
    found = even_partitions(time_ns, most_stages=4, count=5)[num_stages - 1]
    assert len(set(found)) == len(found) == min(5, len(all_squares))
    assert [_squares(time_ns, each) for each in found] == all_squares[:5]
