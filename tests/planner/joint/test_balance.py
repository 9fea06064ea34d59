"""Layers go to neighbours until no worker has more work than it has time for."""

import numpy as np
import pytest

from evener.planner.joint.balance import balance, can_shift
from evener.planner.joint.starts import leveled, state_of
from evener.planner.joint.world import ChainCosts, world_of_chain


@pytest.fixture
def world():
    # 8 layers of F I W = 1 1 1, 2 workers, 4 microbatches
    return world_of_chain(ChainCosts([(1, 1, 1)] * 8), num_workers=2, num_microbatches=4)


def _balanced(world, state, limit_ns):
    random = np.zeros(1, dtype=np.uint64)
    balance(world, state, np.zeros((4, 2), dtype=np.int64), random, limit_ns, 100)
    return state.cut[: state.num_stages[0] + 1].tolist()


def test_layers_go_where_there_is_time(world):
    # 6 layers are 18 per microbatch and 2 are 6. In 54, worker 0 has time for 54 / 4 = 13 and
    # worker 1, which is reached after 6, for 48 / 4 = 12: only 4 and 4 layers fit.
    state = state_of(world, ((0, 6), (6, 8)), [0, 1])
    assert _balanced(world, state, 54) == [0, 4, 8]


def test_nothing_moves_where_all_have_time(world):
    # 18 x 4 = 72
    state = state_of(world, ((0, 6), (6, 8)), [0, 1])
    assert _balanced(world, state, 72) == [0, 6, 8]


def test_a_start_is_left_as_it_is(world):
    state = state_of(world, ((0, 6), (6, 8)), [0, 1])
    level = leveled(world, state, 54)
    assert level.cut[1] == 4
    assert state.cut[1] == 6


def test_a_stage_keeps_a_layer(world):
    state = state_of(world, ((0, 1), (1, 3), (3, 8)), [0, 1, 0])
    assert can_shift(state, 1, 1, 1)
    assert not can_shift(state, 1, 1, 2)  # the second stage has two
    assert can_shift(state, 1, 2, 2)  # but may hand on two from the third
    assert not can_shift(state, 1, 2, -1)
    assert not can_shift(state, 0, 1, 1)
    assert not can_shift(state, 2, 3, 1)
