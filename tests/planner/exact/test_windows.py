"""Orders under a fixed partition and placement."""

import pytest

from evener.planner.exact.timetable import Timetable
from evener.planner.exact.windows import Effort, improve_orders, one_machine_ns
from evener.planner.joint.bench import new_bench
from evener.planner.joint.judge import judge
from evener.planner.joint.orders import holds_too_much, new_deck, orders_of, play
from evener.planner.joint.starts import most_stages, starts
from evener.planner.joint.world import NEVER, ChainCosts, world_of_chain


def _started(world):
    """The orders of every start of the search that fits."""
    bench = new_bench(world, most_stages(world))
    for state in starts(world):
        if judge(world, state, bench, NEVER) < NEVER:
            yield orders_of(world, state, bench)


def _played_ns(world, orders):
    return play(world, orders, new_deck(world, orders), NEVER)


def test_timetable_by_hand():
    # F I W = 1 2 3 and 2 1 1 on two workers, messages take 5, 1 microbatch: F0 0-1, F1 6-8,
    # I1 8-9, W1 9-10, I0 14-16, W0 16-19
    costs = ChainCosts([(1, 2, 3), (2, 1, 1)], latency_ns=5)
    world = world_of_chain(costs, num_workers=2, num_microbatches=1)
    orders = next(each for each in _started(world) if len(set(each.worker)) == 2)
    table = Timetable(world, orders)
    ends = [[table.end_ns[action] for action in row] for row in table.lists]
    assert ends == [[1, 16, 19], [8, 9, 10]]
    assert table.after_ns[1, 1, 0] == 5 + 2 + 3
    assert one_machine_ns(table) == 1 + 5 + 4


@pytest.mark.parametrize("seed", range(3))
def test_timetable_agrees_with_the_judge(make_world, seed):
    world = make_world(seed, workers=3, microbatches=4, layers=6)
    world.wire_ns[:] = 0
    for orders in _started(world):
        table = Timetable(world, orders)
        step_ns = _played_ns(world, orders)
        assert max(table.end_ns[a] + table.after_ns[a] for a in table.end_ns) == step_ns
        assert one_machine_ns(table) <= step_ns


def test_two_stages_by_hand():
    # F I W = 1 1 1 on both of two workers, 2 microbatches.  Worker 1 starts at 1 and runs 6, so no
    # order is faster than 7.  As written its gradients leave at 3 and 6; then I and W: 8
    world = world_of_chain(ChainCosts([(1, 1, 1)] * 2), num_workers=2, num_microbatches=2)
    orders = next(each for each in _started(world) if len(set(each.worker)) == 2)
    orders.action[:] = [[0, 0, 1, 2, 1, 2], [3, 4, 5, 3, 4, 5]]
    assert _played_ns(world, orders) == 8
    improved = improve_orders(world, orders, stop=lambda: False)
    assert (improved.step_ns, improved.least_ns) == (7, 7)


@pytest.mark.parametrize("effort", [Effort(), Effort(whole_s=0.0)], ids=["whole", "windows"])
@pytest.mark.parametrize("cap_bytes", [None, 40])
def test_never_slower_and_within_the_cap(make_world, effort, cap_bytes):
    world = make_world(7, workers=2, microbatches=5, layers=4, plain=True, cap_bytes=cap_bytes)
    for orders in list(_started(world))[:4]:
        before_ns = _played_ns(world, orders)
        improved = improve_orders(world, orders, stop=lambda: False, effort=effort)
        assert improved.least_ns <= improved.step_ns <= before_ns
        assert _played_ns(world, improved.orders) == improved.step_ns
        assert not holds_too_much(world, improved.orders)
        assert improved.orders.cut.tolist() == orders.cut.tolist()
        assert improved.orders.worker.tolist() == orders.worker.tolist()


def test_stopped_at_once(make_world):
    world = make_world(7, workers=2, microbatches=5, layers=4, plain=True)
    orders = next(_started(world))
    improved = improve_orders(world, orders, stop=lambda: True)
    assert improved.step_ns <= _played_ns(world, orders)
