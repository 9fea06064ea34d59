"""Orders of devices by minimum cuts."""

import numpy as np

from evener.planner.spp.device_order import device_order


def _weights(num_nodes, edges):
    weights = np.zeros((num_nodes, num_nodes), dtype=np.int64)
    for one, other, weight in edges:
        weights[one, other] = weights[other, one] = weight
    return weights


def test_devices_of_a_node_stay_together():
    # 0, 2 and 4 in one node, 1, 3 and 5 in another; ten times as fast inside
    inside = [(0, 2), (2, 4), (0, 4), (1, 3), (3, 5), (1, 5)]
    across = [(a, b) for a in (0, 2, 4) for b in (1, 3, 5)]
    edges = [(a, b, 100) for a, b in inside] + [(a, b, 10) for a, b in across]
    order = device_order(_weights(6, edges))
    assert sorted(order) == [0, 1, 2, 3, 4, 5]
    assert {frozenset(order[:3]), frozenset(order[3:])} == {
        frozenset({0, 2, 4}),
        frozenset({1, 3, 5}),
    }
