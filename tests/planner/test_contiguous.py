"""Partitions of tiny chains, against brute force."""

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evener.planner.partition.contiguous import balanced_partition, uniform_partition


def _all_partitions(num_layers, num_stages):
    for cuts in combinations(range(1, num_layers), num_stages - 1):
        ends = (0, *cuts, num_layers)
        yield tuple(pairwise(ends))


def _stage_times(time_ns, partition):
    return [int(time_ns[s, a:b].sum()) for s, (a, b) in enumerate(partition)]


def test_uniform_partition_gives_the_first_stages_one_more():
    # 7 layers over 3 stages: 3 + 2 + 2
    assert uniform_partition(7, 3) == ((0, 3), (3, 5), (5, 7))


def test_a_heavy_head_stands_alone():
    # 5 1 1 1 1 9 over 3 stages: the head alone (9); 5+1 and 3, or 5 and 4: 25+16 < 36+9
    time_ns = np.tile(np.array([5, 1, 1, 1, 1, 9]), (3, 1))
    assert balanced_partition(time_ns) == ((0, 1), (1, 5), (5, 6))


def test_more_stages_than_layers_is_impossible():
    assert balanced_partition(np.ones((3, 2), dtype=np.int64)) is None


def test_memory_caps_move_the_cut():
    # without caps 2 + 2 layers; stage 0 may hold one byte only, each layer takes one: 1 + 3
    ones = np.ones((2, 4), dtype=np.int64)
    caps = np.array([1, 4])
    assert balanced_partition(ones) == ((0, 2), (2, 4))
    assert balanced_partition(ones, bytes_of_stage=ones, cap_bytes=caps) == ((0, 1), (1, 4))


def test_caps_that_nothing_meets():
    ones = np.ones((2, 4), dtype=np.int64)
    assert balanced_partition(ones, bytes_of_stage=ones, cap_bytes=np.array([1, 2])) is None


@given(st.data())
def test_equals_brute_force(data):
    num_layers = data.draw(st.integers(1, 7))
    num_stages = data.draw(st.integers(1, num_layers))
    cell = st.integers(0, 9)
    rows = st.lists(cell, min_size=num_layers, max_size=num_layers)
    time_ns = np.array(data.draw(st.lists(rows, min_size=num_stages, max_size=num_stages)))
    best = min(
        (max(times), sum(t * t for t in times))
        for times in (_stage_times(time_ns, p) for p in _all_partitions(num_layers, num_stages))
    )
    times = _stage_times(time_ns, balanced_partition(time_ns))
    assert (max(times), sum(t * t for t in times)) == best
