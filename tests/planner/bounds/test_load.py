"""All work over all workers."""

import random
from itertools import product

import numpy as np
import pytest

from evener.planner.bounds.load import load_ns


def test_load_is_rounded_up(make_instance):
    # work 3 per layer, 3 layers, 5 microbatches: 45 over 2 workers: 22.5
    assert load_ns(make_instance([1] * 3, [1] * 3, [1] * 3, 2, 5)) == 23


def test_a_slow_worker_gets_less(make_instance):
    # 6 layers of 3; the second worker takes 6 for each.  4 and 2 of them: 12 each, twice.
    fast = [3] * 6
    work = np.array([fast, [6] * 6])
    instance = make_instance([1] * 6, [1] * 6, [1] * 6, 2, 2, worker_work_ns=work)
    assert load_ns(instance) == 24


def test_workers_that_are_fast_at_different_layers(make_instance):
    # Each has its own: layers of 2 on the one, of 2 on the other; all on one would be 8 + 4.
    work = np.array([[2, 2, 4, 4], [4, 4, 2, 2]])
    instance = make_instance([1] * 4, [1] * 4, [0] * 4, 2, 1, worker_work_ns=work)
    assert load_ns(instance) == 4


@pytest.mark.parametrize("seed", range(10))
def test_never_above_the_best_placement_on_unequal_workers(make_instance, seed):
    rng = random.Random(seed)
    work = np.array([[rng.randint(1, 20) for _ in range(5)] for _ in range(3)])
    work[2] = work[0]
    best = min(
        max(sum(work[d, layer] for layer in range(5) if row[layer] == d) for d in range(3))
        for row in product(range(3), repeat=5)
    )
    nothing = [0] * 5
    cheapest = list(work.min(axis=0))
    instance = make_instance(cheapest, nothing, nothing, 3, 4, worker_work_ns=work)
    assert -(-4 * int(sum(cheapest)) // 3) <= load_ns(instance) <= 4 * best
