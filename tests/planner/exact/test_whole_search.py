"""The fastest plan of small worlds, as the judge of the joint search has its time."""

import numpy as np
import pytest

from evener.planner.exact.whole_search import fastest_below, longest_ns
from evener.planner.joint.orders import holds_too_much, new_deck, play
from evener.planner.joint.search import Search
from evener.planner.joint.starts import starts
from evener.planner.joint.world import NEVER, WHOLE, ChainCosts, world_of_chain


def _fastest(world, limit_ns=None):
    limit_ns = longest_ns(world) + 1 if limit_ns is None else limit_ns
    return fastest_below(world, limit_ns, at_least_ns=0, stop=lambda: False)


def _played_ns(world, orders):
    return play(world, orders, new_deck(world, orders), NEVER)


@pytest.mark.parametrize(("workers", "microbatches", "layers"), [(2, 2, 3), (2, 3, 2), (3, 2, 3)])
def test_time_is_the_judges_and_no_search_is_faster(make_world, workers, microbatches, layers):
    sizes = {"workers": workers, "microbatches": microbatches, "layers": layers}
    world = make_world(workers * layers, **sizes)
    found = _fastest(world)
    assert _played_ns(world, found.orders) == found.step_ns == found.least_ns
    search = Search(world, 100_000, seed=0, told=lambda share, best_ns: False)
    assert search.run(list(starts(world)))[1] >= found.step_ns


def test_nothing_is_faster_than_the_fastest(make_world):
    world = make_world(5, workers=2, microbatches=2, layers=3, plain=True)
    step_ns = _fastest(world).step_ns
    found = _fastest(world, step_ns)
    assert (found.orders, found.step_ns, found.least_ns) == (None, step_ns, step_ns)


def test_actions_that_cost_something_are_few():
    # one worker, 2 layers of F I W = 1 1 1, 3 microbatches, 1 ns for every action: one stage with
    # whole backwards, 3 x (2 + 1 + 4 + 1), and the optimizer's 1
    world = world_of_chain(ChainCosts([(1, 1, 1)] * 2), num_workers=1, num_microbatches=3)
    world.overhead_ns[0] = 1
    found = _fastest(world)
    assert (found.orders.cut.tolist(), found.orders.whole.tolist()) == ([0, 2], [1])
    assert found.step_ns == 25


def test_a_cheaper_whole_backward_is_taken():
    # one worker, F I W = 1 2 2 but both together 3: 2 x (1 + 3)
    world = world_of_chain(ChainCosts([(1, 2, 2)]), num_workers=1, num_microbatches=2)
    world.until_ns[WHOLE] = [[0, 3]]
    found = _fastest(world)
    assert found.orders.whole.tolist() == [1]
    assert found.step_ns == 8


def test_messages_take_their_link_in_turn():
    # a layer of F I W = 1 1 1 and 1 byte on each of two workers, as none has room for two bytes, 1
    # for work and an activation of each; a message takes the link for 10: forwards arrive at 11 and
    # 21, gradients leave at 13 and 23 and arrive at 23 and 33; then I and W: 35
    costs = ChainCosts([(1, 1, 1)] * 2, held_bytes=[(1, 0)] * 2, cap_bytes=4)
    world = world_of_chain(costs, num_workers=2, num_microbatches=2)
    world.wire_ns[:, ~np.eye(2, dtype=bool), 1] = 10
    world.state_bytes[:] = [0, 1, 2]
    world.work_bytes[:] = 1
    found = _fastest(world)
    assert (found.step_ns, found.orders.worker.tolist()) == (35, [0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_caps_are_kept(make_world, seed):
    sizes = {"workers": 2, "microbatches": 3, "layers": 2}
    free = _fastest(make_world(seed, **sizes, plain=True))
    for cap_bytes in (20, 12, 8):
        world = make_world(seed, **sizes, plain=True, cap_bytes=cap_bytes)
        found = _fastest(world)
        assert found.step_ns >= free.step_ns
        if found.orders is not None:
            assert not holds_too_much(world, found.orders)
            assert _played_ns(world, found.orders) == found.step_ns == found.least_ns
