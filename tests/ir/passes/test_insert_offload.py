"""Where OFFLOAD, FREE and RELOAD stand, by hand, and what that does to the peak."""

from dataclasses import replace

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.check import violations
from evener.ir.memory import MemoryTable, peak_bytes
from evener.ir.passes import insert_offload, lower, offloadable
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import SCHEDULES, ScheduleShape, one_f_one_b
from evener.schedules.gpipe import gpipe
from evener.testing.conformance import shape_for


def one_worker(row: str, num_microbatches: int = 4) -> Schedule:
    return Schedule("test", 1, num_microbatches, (tuple(map(parse_action, row.split())),))


def row(schedule: Schedule, worker: int = 0) -> str:
    return " ".join(map(str, schedule.workers[worker]))


def test_a_copy_runs_beside_one_compute_action_each_way() -> None:
    world = insert_offload(
        one_worker("0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0"), [(0, 0, None), (0, 1, None)]
    )
    assert row(world) == (
        "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0FREE0 0F2 0FREE1 0F3 0B3 0RELOAD1 0B2 0RELOAD0 0B1 0B0"
    )
    assert violations(world) == []


def test_a_longer_lead_gives_the_copies_more_time() -> None:
    world = insert_offload(one_worker("0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0"), [(0, 0, None)], lead=2)
    assert row(world) == "0F0 0OFFLOAD0 0F1 0F2 0FREE0 0F3 0B3 0RELOAD0 0B2 0B1 0B0"


def test_what_is_recomputed_comes_back_for_that_and_side_work_counts() -> None:
    world = insert_offload(one_worker("0F0 0X:p 0F1 0X:p 0R0 0I0 0B1 0W0", 2), [(0, 0, None)])
    assert row(world) == "0F0 0OFFLOAD0 0X:p 0FREE0 0F1 0RELOAD0 0X:p 0R0 0I0 0B1 0W0"


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_stays_legal(name: str) -> None:
    # Also those with braids, between whose two actions nothing may come.
    entry = SCHEDULES[name]
    shape = shape_for(entry, 4, 8)
    plain = entry(shape if entry.slicer is None else replace(shape, num_slices=3))
    world = lower(insert_offload(plain, offloadable(plain)))
    assert Kind.OFFLOAD in world.kinds
    assert violations(world) == []


def test_sends_leave_before_the_worker_waits_for_a_copy() -> None:
    plain = gpipe(ScheduleShape(num_workers=2, num_microbatches=3))
    world = lower(insert_offload(plain, [(0, 0, None)]))
    assert row(world) == (
        "0F0 0SEND_F0 0OFFLOAD0 0F1 0SEND_F1 0FREE0 0F2 0SEND_F2 0RECV_B2 0B2 0RECV_B1 0RELOAD0 "
        "0B1 0RECV_B0 0B0 0STEP"
    )
    assert violations(world) == []


def test_the_peak_of_gpipe_hardly_grows_with_the_microbatches() -> None:
    # Of 10 bytes, 9 go. At the last forward the first six have left 1 each and the last two are
    # whole: 6 + 2 * 10 = 26 of 80. On the way back one is whole and one comes: 5 + 2 * 10.
    plain = gpipe(ScheduleShape(num_workers=1, num_microbatches=8))
    table = MemoryTable({Resource.ACTIVATION: (10,), Resource.OFFLOADED: (9,)}, (0,))
    assert peak_bytes(plain, table) == (80,)
    offloaded = insert_offload(plain, [(0, m, None) for m in range(6)])
    assert peak_bytes(offloaded, table) == (26,)
    assert violations(offloaded, memory=table, cap_bytes=[26]) == []
    (over,) = violations(offloaded, memory=table, cap_bytes=[25])
    assert over == (
        "worker 0 holds 26 B, its cap is 25 B: static 0 B + stage 0 activation 8 x 10 B + stage 0 "
        "offloaded part -6 x 9 B at 0F7. Ways out, besides the offload that is there: fewer "
        "microbatches in flight, recompute, or fewer layers on this worker"
    )


def test_what_lives_long_enough_is_known_and_the_longest_lived_comes_first() -> None:
    # F of microbatch m stands at place m and B at 7 - m; 3 actions must stand between them.
    plain = gpipe(ScheduleShape(num_workers=1, num_microbatches=4))
    assert offloadable(plain) == ((0, 0, None), (0, 1, None))
    # With a lead of 2, 5 must: 6 and 4 do.
    assert offloadable(plain, lead=2) == ((0, 0, None),)


def test_what_cannot_be_offloaded_is_named_with_the_reason() -> None:
    world = one_f_one_b(ScheduleShape(num_workers=2, num_microbatches=4))
    with pytest.raises(ScheduleError) as caught:
        insert_offload(world, [(0, 0, None), (1, 0, None), (5, 0, None)])
    assert str(caught.value) == (
        "schedule one_f_one_b cannot offload all of these\n"
        "  0OFFLOAD0: 1 compute actions stand between its forward and its backward, 3 are needed; "
        "leave it out\n"
        "  1OFFLOAD0: 0 compute actions stand between its forward and its backward, 3 are needed; "
        "leave it out\n"
        "  5OFFLOAD0: no worker runs its forward and a backward; leave it out"
    )


def test_messages_and_offloads_come_once() -> None:
    world = one_f_one_b(ScheduleShape(num_workers=4, num_microbatches=4))
    done = insert_offload(world, [(0, 1, None)])
    for given in (done, lower(world)):
        with pytest.raises(ScheduleError) as caught:
            insert_offload(given, [])
        assert str(caught.value) == (
            "schedule one_f_one_b has messages or offloads already: pass the compute-only "
            "schedule without them"
        )
    assert insert_offload(world, []) == world
