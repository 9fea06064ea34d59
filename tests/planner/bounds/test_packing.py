"""Layers are whole."""

import random
from itertools import product

import numpy as np
import pytest

from evener.planner.bounds import packing
from evener.planner.bounds.fill import fill_ns
from evener.planner.bounds.packing import packing_ns


def test_three_equal_layers_on_two_workers(make_instance):
    # One worker has two layers of 3, and if it is the second, it starts 1 later: 4 x 6.
    # The load is 4 x 9 / 2 = 18.
    assert packing_ns(make_instance([1] * 3, [1] * 3, [1] * 3, 2, 4)) == 24


def test_the_worker_of_the_first_layer_starts_first(make_instance):
    # Work 2, 6, 6 with F 1, 2, 2: {0, 1} and {2} is 8 m, or 6 m and later by 1: m = 3: 24.
    # {0} and {1, 2} would be 36.
    assert packing_ns(make_instance([1, 2, 2], [1, 2, 2], [0, 2, 2], 2, 3)) == 24


def test_where_nothing_may_wait_the_way_back_counts(make_instance):
    # Two layers, F 1, B 2 never split, m = 4 on 2 workers: 1 + 4 x 3 + 2 = 15 = (m + p - 1) x 3,
    # which 1F1B reaches.
    assert packing_ns(make_instance([1, 1], [2, 2], [0, 0], 2, 4)) == 15


def test_copies_may_share_a_layer(make_instance):
    # three layers of 3, m = 4, on 2 workers in both directions: no more than the load, 18
    instance = make_instance([1] * 3, [1] * 3, [1] * 3, 2, 4, stage_copies=2)
    assert packing_ns(instance) == fill_ns(instance) == 18


def _best_ns(forward, work, workers, microbatches):
    """Over all placements, the latest end of a worker that works on from its first layer on."""
    best = None
    for row in product(range(workers), repeat=len(work)):
        ends = []
        for worker in set(row):
            own = [layer for layer, holder in enumerate(row) if holder == worker]
            ends.append(sum(forward[: own[0]]) + microbatches * sum(work[i] for i in own))
        if len(ends) == workers:
            best = max(ends) if best is None else min(best, max(ends))
    return best


@pytest.mark.parametrize("seed", range(20))
def test_never_above_the_best_placement(make_instance, monkeypatch, seed):
    rng = random.Random(seed)
    forward, weight = ([rng.randint(1, 5) for _ in range(6)] for _ in range(2))
    nothing = [0] * 6
    instance = make_instance(forward, nothing, weight, 3, 2)
    # Without the way back nothing is lost but the starts, which count by their least: layers 1, 2.
    best_ns = max(
        fill_ns(instance),
        _best_ns(forward, list(np.add(forward, weight)), 3, 2),
    )
    exact_ns = packing_ns(instance)
    assert exact_ns <= best_ns
    monkeypatch.setattr(packing, "_MOST_STATES", 2)  # all kinds but one become one
    assert fill_ns(instance) <= packing_ns(instance) <= exact_ns


def test_many_kinds_stay_quick(make_instance):
    # 60 layers of 60 kinds on 8 workers: merged until few are left; the load is proven still
    times = list(range(100, 160))
    instance = make_instance(times, times, times, 8, 16)
    assert packing_ns(instance) >= fill_ns(instance) > 16 * 3 * sum(times) // 8
