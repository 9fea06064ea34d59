"""What the checker refuses, word for word: order, deadlock, memory. Structure has its own file."""

from dataclasses import replace
from random import Random

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.check import check, violations
from evener.ir.memory import MemoryTable
from evener.ir.order import require_order
from evener.ir.passes import insert_messages
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.testing.random_schedules import random_schedule


def schedule(*rows: str, num_stages: int = 2, num_microbatches: int = 1) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Schedule("test", num_stages, num_microbatches, workers)


def deadlock(*lines: str) -> str:
    """The text of a deadlock with these waits."""
    head = "deadlock, each waits for the next and the last for the first:"
    return "\n      ".join((head, *lines, "move one of these in its worker's list"))


def test_a_legal_schedule_has_no_violations() -> None:
    world = schedule("0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0")
    assert violations(world) == []
    check(world)


def test_all_violations_are_told_at_once() -> None:
    world = schedule("0B0 0F0", "1B0 1F0")
    with pytest.raises(ScheduleError) as caught:
        check(world)
    assert str(caught.value) == (
        "schedule test is not legal\n"
        "  worker 0: 0B0 stands before 0F0, which it needs: move it behind\n"
        "  worker 1: 1B0 stands before 1F0, which it needs: move it behind"
    )


def test_a_long_list_of_violations_is_cut() -> None:
    with pytest.raises(ScheduleError) as caught:
        check(schedule("", num_stages=1, num_microbatches=50))
    # F and B of 50 microbatches are missing.
    assert len(caught.value.violations) == 41
    assert caught.value.violations[-1] == "... and 60 more"


def test_first_order_of_pytorch_172668_is_refused() -> None:
    # 4 stages, 0 and 2 on worker 0, 1 and 3 on worker 1.
    world = schedule(
        "0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1 2RECV_B0 2B0 "
        "2SEND_B0 2RECV_B1 2B1 2SEND_B1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 3RECV_F1 3F1 3B1 "
        "3SEND_B1 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1 1SEND_B1",
        num_stages=4,
        num_microbatches=2,
    )
    assert violations(world) == [
        deadlock(
            "worker 1 cannot receive 1RECV_F1 (worker 0: 0SEND_F1) before it has sent 1SEND_F0 "
            "(worker 0: 2RECV_F0), which its list has before it",
            "worker 0 cannot receive 2RECV_F0 (worker 1: 1SEND_F0) before it has sent 0SEND_F1 "
            "(worker 1: 1RECV_F1), which its list has before it",
        )
    ]


def test_second_order_of_pytorch_172668_is_refused() -> None:
    world = schedule(
        "0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1 0F2 0SEND_F2 "
        "2RECV_B0 2B0 2SEND_B0 0RECV_B0 0B0 2RECV_B1 2B1 2SEND_B1 2RECV_F2 2F2 2SEND_F2 0RECV_B1 "
        "0B1 2RECV_B2 2B2 2SEND_B2 0RECV_B2 0B2",
        "1RECV_F0 1F0 1RECV_F1 1SEND_F0 1F1 3RECV_F0 1SEND_F1 3F0 3B0 3RECV_F1 3SEND_B0 3F1 3B1 "
        "1RECV_F2 3SEND_B1 1F2 1RECV_B0 1B0 1SEND_B0 1SEND_F2 1RECV_B1 1B1 3RECV_F2 1SEND_B1 3F2 "
        "3B2 3SEND_B2 1RECV_B2 1B2 1SEND_B2",
        num_stages=4,
        num_microbatches=3,
    )
    assert violations(world) == [
        deadlock(
            "worker 1 cannot receive 1RECV_F2 (worker 0: 0SEND_F2) before it has sent 3SEND_B0 "
            "(worker 0: 2RECV_B0), which its list has before it",
            "worker 0 cannot receive 2RECV_B0 (worker 1: 3SEND_B0) before it has sent 0SEND_F2 "
            "(worker 1: 1RECV_F2), which its list has before it",
        )
    ]


def test_receiving_a_gradient_before_sending_the_activation_is_refused() -> None:
    world = schedule("0F0 0RECV_B0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0")
    assert violations(world) == [
        deadlock(
            "worker 1 cannot send 1SEND_B0 (worker 0: 0RECV_B0) before it has received 1RECV_F0 "
            "(worker 0: 0SEND_F0), which its list has before it",
            "worker 0 cannot send 0SEND_F0 (worker 1: 1RECV_F0) before it has received 0RECV_B0 "
            "(worker 1: 1SEND_B0), which its list has before it",
        )
    ]


def test_a_cycle_through_compute_actions_is_told() -> None:
    # Each worker first wants the microbatch that the other one keeps for last.
    assert violations(schedule("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1", num_microbatches=2)) == []
    stuck = schedule("1F1 0F0 1B1 0B0", "1F0 0F1 1B0 0B1", num_microbatches=2)
    assert violations(stuck) == [
        deadlock(
            "worker 0 cannot start 1F1 before worker 1 has ended 0F1",
            "worker 1 cannot start 0F1 before it has ended 1F0, which its list has before it",
            "worker 1 cannot start 1F0 before worker 0 has ended 0F0",
            "worker 0 cannot start 0F0 before it has ended 1F1, which its list has before it",
        )
    ]
    with pytest.raises(ScheduleError) as caught:
        require_order(stuck)
    assert str(caught.value) == f"schedule test cannot run to the end\n  {violations(stuck)[0]}"


def test_collectives_in_different_orders_are_refused() -> None:
    world = schedule(
        "0F0 1F0 1B0 0B0 0REDUCE 1REDUCE",
        "0F1 1F1 1B1 0B1 1REDUCE 0REDUCE",
        num_microbatches=2,
    )
    assert violations(world) == [
        deadlock(
            "worker 1 cannot start 0REDUCE (worker 0: 0REDUCE) before it has ended 1REDUCE "
            "(worker 0: 1REDUCE), which its list has before it",
            "worker 0 cannot start 1REDUCE (worker 1: 1REDUCE) before it has ended 0REDUCE "
            "(worker 1: 0REDUCE), which its list has before it",
        )
    ]


def test_a_cycle_in_a_large_schedule_is_explained_shortly() -> None:
    # 1F1B on 8 workers with 64 microbatches, in which worker 3 sends one gradient too late: some
    # seventy events are stuck in a row, but two of them tell it all.
    world = insert_messages(one_f_one_b(8, 64))
    rows = [list(actions) for actions in world.workers]
    send = Action(3, Kind.SEND_B, 5)
    rows[3].remove(send)
    rows[3].insert(rows[3].index(Action(3, Kind.SEND_B, 40)), send)
    stuck = Schedule("stuck", 8, 64, tuple(map(tuple, rows)))
    assert violations(stuck) == [
        deadlock(
            "worker 3 cannot send 3SEND_B5 (worker 2: 2RECV_B5) before it has received 3RECV_F45 "
            "(worker 2: 2SEND_F45), which its list has before it",
            "worker 2 cannot send 2SEND_F45 (worker 3: 3RECV_F45) before it has received 2RECV_B5 "
            "(worker 3: 3SEND_B5), which its list has before it",
        )
    ]


def one_f_one_b(num_stages: int, num_microbatches: int) -> Schedule:
    workers = []
    for stage in range(num_stages):
        ahead = min(num_stages - 1 - stage, num_microbatches)
        order = [Action(stage, Kind.F, m) for m in range(ahead)]
        for m in range(num_microbatches):
            if ahead + m < num_microbatches:
                order.append(Action(stage, Kind.F, ahead + m))
            order.append(Action(stage, Kind.B, m))
        workers.append(tuple(order))
    return Schedule("1F1B", num_stages, num_microbatches, tuple(workers))


GIB = 2**30
TABLE = MemoryTable(
    {
        Resource.ACTIVATION: (GIB, 2 * GIB),
        Resource.INPUT: (0, GIB // 2),
        Resource.WEIGHT_GRADIENT: (GIB, GIB),
    },
    static_bytes=(GIB, 3 * GIB),
)


def test_a_cap_that_is_kept_is_no_violation() -> None:
    # Worker 0: 1 GiB + 2 activations of 1 GiB. Worker 1: 3 + 2 GiB.
    world = schedule("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", num_microbatches=2)
    assert violations(world, memory=TABLE, cap_bytes=(3 * GIB, 5 * GIB)) == []


def test_a_broken_cap_names_what_is_held() -> None:
    world = insert_messages(
        schedule("0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1I0 1W0 1B1 1F2 1B2", num_microbatches=3)
    )
    out = "Ways out: fewer microbatches in flight, recompute, or fewer layers on this worker"
    assert violations(world, memory=TABLE, cap_bytes=(3 * GIB, 7 * GIB)) == [
        # 1 + 3 x 1 GiB.
        (
            "worker 0 holds 4 GiB, its cap is 3 GiB: "
            f"static 1 GiB + stage 0 activation 3 x 1 GiB at 0F2. {out}"
        ),
        # 3 + 0.5 + 2 x 2 GiB: the input of microbatch 2 is posted before those of I0 are free.
        (
            "worker 1 holds 7.5 GiB, its cap is 7 GiB: static 3 GiB + stage 1 input 1 x 512 MiB + "
            f"stage 1 activation 2 x 2 GiB at 1RECV_F2. {out}"
        ),
    ]


def test_what_takes_no_memory_is_not_named() -> None:
    # The gradient of microbatch 0 is posted before F1, but the table has no size for it.
    world = schedule(
        "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0RECV_B1 0B0 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
        num_microbatches=2,
    )
    (text,) = violations(world, memory=TABLE, cap_bytes=(2 * GIB, 9 * GIB))
    assert ": static 1 GiB + stage 0 activation 2 x 1 GiB at 0F1. Ways out" in text


def test_static_memory_alone_can_break_a_cap() -> None:
    world = schedule("0F0 1F0 1B0 0B0", "")
    (text,) = violations(world, memory=TABLE, cap_bytes=(9 * GIB, GIB))
    assert text == (
        "worker 1 holds 3 GiB, its cap is 1 GiB: static 3 GiB. The static part alone is too much, "
        "so neither recompute nor offload helps. Way out: fewer layers on this worker"
    )


def test_evaluation_runs_forward_only() -> None:
    world = schedule("0F0 0SEND_F0", "1RECV_F0 1F0")
    assert violations(world, forward_only=True) == []
    assert violations(world) == [
        "0B0 is missing: the forward has no backward (B, or I and W)",
        "1B0 is missing: the forward has no backward (B, or I and W)",
    ]
    assert violations(schedule("0F0 1F0 1B0"), forward_only=True) == [
        "worker 0: 1B0 has no place in a forward-only schedule: drop it"
    ]


def test_random_schedules_are_legal_before_they_are_lowered() -> None:
    for seed in range(50):
        assert violations(random_schedule(Random(seed))) == []


def sliced(*rows: str) -> Schedule:
    return replace(schedule(*rows, num_stages=1), num_slices=2)


def test_forwards_of_slices_run_in_order_and_backwards_in_reverse() -> None:
    # Causal attention: a slice reads keys and values of those before it, and gets their gradients
    # from those behind it.
    assert violations(sliced("0F0.0 0F0.1 0B0.1 0B0.0")) == []
    assert violations(sliced("0F0.0 0F0.1 0I0.1 0I0.0 0W0.0 0W0.1")) == []
    assert violations(sliced("0F0.1 0F0.0 0B0.1 0B0.0")) == [
        "worker 0: 0F0.1 stands before 0F0.0, which it needs: move it behind"
    ]
    assert violations(sliced("0F0.0 0F0.1 0B0.0 0B0.1")) == [
        "worker 0: 0B0.0 stands before 0B0.1, which it needs: move it behind"
    ]
    assert violations(sliced("0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0W0.1")) == [
        "worker 0: 0I0.0 stands before 0I0.1, which it needs: move it behind"
    ]


def test_a_recomputation_needs_the_forward_of_the_slice_before() -> None:
    assert violations(sliced("0F0.0 0F0.1 0R0.1 0B0.1 0R0.0 0B0.0")) == []
