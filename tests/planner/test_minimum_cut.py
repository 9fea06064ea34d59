"""Minimum cuts of small graphs."""

from itertools import combinations

import numpy as np
import pytest

from evener.planner.minimum_cut import minimum_cut


def _weights(num_nodes, edges):
    weights = np.zeros((num_nodes, num_nodes), dtype=np.int64)
    for one, other, weight in edges:
        weights[one, other] = weights[other, one] = weight
    return weights


def test_two_nodes_are_one_cut():
    assert minimum_cut(_weights(2, [(0, 1, 5)])) in ((5, (0,)), (5, (1,)))


def test_example_of_stoer_and_wagner():
    # Figure 1 of their paper, from 0; the cut of weight 4 takes 3, 4, 7, 8 (there) apart.
    edges = [(1, 2, 2), (1, 5, 3), (2, 3, 3), (2, 5, 2), (2, 6, 2), (3, 4, 4), (3, 7, 2)]
    edges += [(4, 7, 2), (4, 8, 2), (5, 6, 3), (6, 7, 1), (7, 8, 3)]
    found = minimum_cut(_weights(8, [(a - 1, b - 1, weight) for a, b, weight in edges]))
    assert found.weight == 4
    assert {node + 1 for node in found.side} in ({3, 4, 7, 8}, {1, 2, 5, 6})


@pytest.mark.parametrize("seed", range(5))
def test_no_cut_is_smaller(seed):
    random = np.random.default_rng(seed)
    weights = random.integers(0, 10, size=(6, 6))
    weights = weights + weights.T

    def cut(part):
        rest = [node for node in range(6) if node not in part]
        return weights[np.ix_(list(part), rest)].sum()

    least = min(cut(part) for size in range(1, 4) for part in combinations(range(6), size))
    found = minimum_cut(weights)
    assert cut(found.side) == found.weight == least
