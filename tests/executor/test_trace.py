"""Times of all workers become one timeline."""

import time
from array import array

from evener.executor import trace
from evener.executor.clock import WallClock
from evener.interp.worker import WorkerProgram
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.schedules import ScheduleShape, gpipe
from evener.testing.memory_transport import run_in_memory

# Worker 0: 0F0 0SEND_F0 0RECV_B0 0B0 0STEP; worker 1: 1RECV_F0 1F0 1B0 1SEND_B0 1STEP.
SCHEDULE = lower(gpipe(ScheduleShape(2, 1)))


def clock_with(schedule: Schedule, worker: int, starts: list[int], ends: list[int]) -> WallClock:
    clock = WallClock(WorkerProgram(schedule, worker))
    clock.start_ns = array("q", starts)
    clock.end_ns = array("q", ends)
    return clock


def test_a_measured_message_lasts_from_its_sending_to_its_taking() -> None:
    assert [str(action) for _, action in SCHEDULE.actions()] == [
        *("0F0", "0SEND_F0", "0RECV_B0", "0B0", "0STEP"),
        *("1RECV_F0", "1F0", "1B0", "1SEND_B0", "1STEP"),
    ]
    # Worker 1's clock is 1000 ahead. Its own times less 1000: takes at 130, F, B, sends at 180.
    times = [
        ([100, 110, 190, 190, 220], [110, 110, 190, 210, 225]),
        ([1130, 1130, 1150, 1180, 1200], [1130, 1150, 1180, 1180, 1204]),
    ]

    def work(transport):
        clock = clock_with(SCHEDULE, transport.worker, *times[transport.worker])
        return trace.gather_timeline(transport, SCHEDULE, clock, 1000 * transport.worker)

    first, second = run_in_memory(2, work)
    assert first.start_ns == second.start_ns
    assert first.source == "measured"
    # All less 100, the first start.
    assert list(first.start_ns) == [0, 10, 80, 90, 120, 10, 30, 50, 80, 100]
    assert list(first.end_ns) == [10, 30, 90, 110, 125, 30, 50, 80, 90, 104]
    assert first.step_ns == 125


def test_a_wrong_offset_lets_no_message_arrive_before_it_was_sent() -> None:
    times = [
        ([100, 110, 190, 190, 220], [110, 110, 190, 210, 225]),
        ([105, 105, 150, 180, 200], [105, 150, 180, 180, 204]),
    ]

    def work(transport):
        clock = clock_with(SCHEDULE, transport.worker, *times[transport.worker])
        return trace.gather_timeline(transport, SCHEDULE, clock, 0)

    timeline = run_in_memory(2, work)[0]
    assert timeline.start_ns[5] == timeline.end_ns[5] == 10


def test_workers_of_one_machine_share_their_clock() -> None:
    assert run_in_memory(3, trace.clock_offset_ns) == [0, 0, 0]


def test_the_clock_of_another_machine_is_compared() -> None:
    # Worker 2 is on another machine, where the clock is 5 s ahead.
    def work(transport) -> int:
        ahead_ns = 5_000_000_000 * (transport.worker == 2)
        return trace.clock_offset_ns(
            transport,
            machine="there" if transport.worker == 2 else "here",
            now_ns=lambda: time.monotonic_ns() + ahead_ns,
        )

    first, second, third = run_in_memory(3, work)
    assert (first, second) == (0, 0)
    assert abs(third - 5_000_000_000) < 500_000_000
