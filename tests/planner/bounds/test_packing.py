"""Layers are whole."""

import random
from itertools import product

import pytest

from evener.planner.bounds import packing
from evener.planner.bounds.fill import fill_ns
from evener.planner.bounds.heavy_layer import heaviest, heavy_layer_ns
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


def test_the_worker_of_the_head_needs_work_for_before_and_after(make_instance):
    # Work 4, 6, 6, 10, m = 2, 2 workers; the head is 6 from either end.  Alone it takes 6 + 16 + 6
    # and leaves 32 to the other.  With layer 0: 8 + 20, and before the head is reached there are
    # only 2 x 2, so 2 more: 30; afterwards 2 x 2 and its own weight gradient, 2 x 2, fill the 6.
    # With another layer 12 + 20.  30 is what the best plan takes.
    assert packing_ns(make_instance([2, 2, 2, 4], [2, 2, 2, 4], [0, 2, 2, 2], 2, 2)) == 30


def test_nobody_waits_for_a_heavy_embedding(make_instance):
    # Work 12, 3, 3 and m = 3: 36 for the first layer, 18 and a wait of 4 for the second worker.
    assert packing_ns(make_instance([4, 1, 1], [4, 1, 1], [4, 1, 1], 2, 3)) == 36


def test_a_head_that_leaves_room_for_little(make_instance):
    # llama3-70B in ticks of 0.01 ms, with a larger head: by itself it proves 351,509, and 85 % of
    # what each of the three others would have.
    layers = [(437, 209, 0)] + [(560, 684, 437)] * 80 + [(11693, 19004, 7587)]
    instance = make_instance(*zip(*layers, strict=True), 4, 8)
    assert heavy_layer_ns(instance) == 351_509
    assert packing_ns(instance) == 363_533


def _best_ns(instance):
    """Over all placements, the latest end of a worker with what it waits for at least."""
    chain, m, h = instance.chain, instance.num_microbatches, heaviest(instance).layer
    forward, input_, weight = chain.forward_ns, chain.input_ns, chain.rest_ns
    there, back = instance.front_ns(forward), instance.front_ns(input_)
    ends = []
    for row in product(range(instance.num_workers), repeat=instance.num_layers):
        if len(set(row)) < instance.num_workers:
            continue
        steps = []
        for worker in range(instance.num_workers):
            own = [layer for layer, holder in enumerate(row) if holder == worker]
            before = there[own[0]]
            after = max(0, back[own[0]] - m * weight.sum())
            if h in own:
                before = max(before, there[h] - m * sum(forward[i] for i in own if i < h))
                late = sum(weight[own]) + sum(input_[i] for i in own if i < h)
                after = max(after, back[h] - m * late)
            steps.append(before + m * sum(chain.work_ns[own]) + after)
        ends.append(max(steps))
    return min(ends)


@pytest.mark.parametrize("seed", range(20))
def test_never_above_the_best_placement(make_instance, monkeypatch, seed):
    rng = random.Random(seed)
    parts = [[rng.randint(1, 5) for _ in range(6)] for _ in range(3)]
    for part in parts[:2]:
        part[rng.choice([2, 5, 5])] *= rng.randint(1, 4)
    parts[2] = [rng.choice([0, 1]) * own for own in parts[2]]
    instance = make_instance(*parts, 3, 2)
    others_ns = max(fill_ns(instance), heavy_layer_ns(instance))
    exact_ns = packing_ns(instance)
    assert others_ns <= exact_ns <= max(others_ns, _best_ns(instance))
    monkeypatch.setattr(packing, "_MOST_STATES", 2)  # all kinds but one become one
    assert others_ns <= packing_ns(instance) <= exact_ns


def test_many_kinds_stay_quick(make_instance):
    # 60 layers of 60 kinds on 8 workers: merged until few are left; the load is proven still
    times = list(range(100, 160))
    instance = make_instance(times, times, times, 8, 16)
    assert packing_ns(instance) >= fill_ns(instance) > 16 * 3 * sum(times) // 8
