"""Placements near the regular one. Scores: variance, neighbours that share, largest load."""

import numpy as np

from evener.planner.adaptis.placements import placements


def _found(time_ns, num_workers):
    return placements(np.array(time_ns), num_workers, np.random.default_rng(0))


def test_the_regular_one_is_there_with_its_score():
    # loads 3 + 4 and 1 + 2: mean 5, variance 4
    assert _found([3, 1, 4, 2], 2)[0, 1, 0, 1] == (4.0, 0, 7)


def test_moved_stages_share_a_worker_with_their_neighbour():
    # stage 1 moved to worker 0: loads 8 and 2: mean 5, variance 9; pairs 0-1 and 1-2 share
    assert _found([3, 1, 4, 2], 2)[0, 0, 0, 1] == (9.0, 2, 8)


def test_greedy_balance_moves_the_stage_that_evens_most():
    # 9 + 1 + 5 on worker 0, 1 + 1 + 1 on worker 1, 12 apart: moving 5 leaves 2, 9 leaves 6
    balanced = _found([9, 1, 1, 1, 5, 1], 2)
    assert balanced[0, 1, 0, 1, 1, 1] == (1.0, 2, 10)


def test_neighbours_are_dispersed():
    # stage 1 moved to worker 0 comes to a third worker that has neither neighbour: 1 or 2
    found = _found([2, 2, 2, 2, 2, 2], 3)
    assert (0, 1, 2, 0, 1, 2) in found
    assert all(len(set(each)) == 3 for each in found)
    assert any(score[1] == 0 and len(set(each[:3])) == 2 for each, score in found.items())


def test_no_worker_is_left_without_a_stage():
    assert list(_found([5, 1], 2)) == [(0, 1), (1, 0)]
