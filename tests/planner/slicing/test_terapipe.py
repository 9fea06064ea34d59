"""The dynamic programme against every way to cut."""

from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest

from evener.planner.slicing.terapipe import best_cuts, terapipe_slices
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.testing.worlds import unit_costs


def step_ns(latency_ns, cuts, num_stages, num_microbatches):
    times = [int(latency_ns[first, last]) for first, last in pairwise(cuts)]
    return num_microbatches * sum(times) + (num_stages - 1) * max(times)


def every_cut(n, most_slices):
    for count in range(min(n, most_slices)):
        for inner in combinations(range(1, n), count):
            yield [0, *inner, n]


@pytest.mark.parametrize("seed", range(20))
def test_equals_brute_force_on_small_tables(seed):
    random = Random(seed)
    for _ in range(10):
        n = random.randint(1, 7)
        latency_ns = np.array([[random.randint(1, 40) for _ in range(n + 1)] for _ in range(n + 1)])
        sizes = {"num_stages": random.randint(1, 6), "num_microbatches": random.randint(1, 3)}
        most = random.randint(1, n)
        cuts = best_cuts(latency_ns, most_slices=most, **sizes)
        assert cuts[0] == 0
        assert cuts[-1] == n
        assert len(cuts) <= most + 1
        best = min(step_ns(latency_ns, each, *sizes.values()) for each in every_cut(n, most))
        assert step_ns(latency_ns, cuts, *sizes.values()) == best


def test_longer_slices_first_where_context_costs(make_work):
    # 6 tokens cost 1 to 6; 4 stages. 3 slices: (3, 2, 1) take 6, 9 and 6: 21 + 3 x 9 = 48. The last
    # token alone costs 6, so (3, 1, 1, 1) with 21 + 3 x 6 = 39 is as good as one token each.
    work = make_work(6)
    assert terapipe_slices(work, 6) == (3, 1, 1, 1)
    assert terapipe_slices(work, 3) == (3, 2, 1)
    # An action of 9 ns besides: 6 slices take 75 + 3 x 15 = 120, (3, 2, 1) 48 + 3 x 18 = 102,
    # (4, 2) takes 10 + 9 and 11 + 9: 39 + 3 x 20 = 99.
    assert terapipe_slices(make_work(6, overhead_ns=9), 6) == (4, 2)


def test_a_coarser_grid_for_long_sequences(make_work):
    # 640 tokens between 64 parts of 10.
    lengths = terapipe_slices(make_work(640), 8)
    assert sum(lengths) == 640
    assert all(length % 10 == 0 for length in lengths)
    assert list(lengths) == sorted(lengths, reverse=True)
    # Or 100 tokens on a grid of 8: at most 12 parts.
    assert all(length % 8 == 0 for length in terapipe_slices(make_work(100, grid=8), 4)[:-1])


def test_a_sequence_that_cannot_be_cut(make_work):
    assert terapipe_slices(make_work(1), 4) == (1,)


def test_what_it_minimises_is_what_the_simulator_says():
    # 3 equal slices of F = 1, B = 2 on 4 stages, 2 microbatches: 2 x 3 x 3 + 3 x 3.
    timeline = simulate(SCHEDULES["terapipe"](ScheduleShape(4, 2, num_slices=3)), unit_costs(4, 4))
    assert timeline.step_ns == 2 * 3 * 3 + 3 * 3
