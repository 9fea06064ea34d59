"""The virtual clock gives the simulator's times, and sleeping takes the time it should."""

import time
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from evener.cost.table import KIND_INDEX, CostTable, SliceCosts
from evener.executor.emulate import StandIn, measured_costs
from evener.executor.emulated_clock import (
    Durations,
    SleepClock,
    VirtualClock,
    charge_table,
    charge_thread_time,
)
from evener.executor.loop import Loop
from evener.executor.trace import StepTimes, join_times, note_times
from evener.interp.worker import WorkerProgram
from evener.ir.action import Kind
from evener.ir.passes import lower
from evener.ir.schedule import MESSAGE_KINDS, Schedule
from evener.ir.text import parse_action
from evener.ir.timeline import Timeline
from evener.schedules import SCHEDULES, ScheduleShape, gpipe
from evener.sim import simulate
from evener.testing.history_engine import Histories, HistoryEngine
from evener.testing.memory_transport import run_in_memory
from evener.testing.random_costs import random_costs
from evener.testing.random_schedules import (
    random_lowered_schedule,
    random_schedule,
    with_random_braids,
)


def play(schedule: Schedule, costs: CostTable) -> Timeline:
    """Run a lowered schedule in threads on the virtual clock, with values checked."""
    histories = Histories(schedule)

    def work(transport) -> StepTimes:
        program = WorkerProgram(schedule, transport.worker)
        durations = Durations(program, costs)

        def run_and_charge(position, run) -> int:
            run()
            return durations.duration_ns[position]

        clock = VirtualClock(
            program, durations=durations, transport=transport, charge=run_and_charge
        )
        engine = HistoryEngine(histories, transport.worker)
        Loop(program, engine=engine, transport=transport, clock=clock).run_step()
        return note_times(clock)

    parts = run_in_memory(schedule.num_workers, work)
    return join_times(schedule, parts, source="test")


def sleep(schedule: Schedule, costs: CostTable) -> Timeline:
    """Run a lowered schedule in threads that sleep."""

    def work(transport) -> StepTimes:
        program = WorkerProgram(schedule, transport.worker)
        clock = SleepClock(program, durations=Durations(program, costs), transport=transport)
        Loop(program, engine=StandIn(), transport=transport, clock=clock).run_step()
        return note_times(clock)

    parts = run_in_memory(schedule.num_workers, work)
    return join_times(schedule, parts, source="test")


@pytest.mark.parametrize("seed", range(0, 100, 20))
def test_virtual_times_equal_the_simulation_on_random_schedules(seed: int) -> None:
    for number in range(seed, seed + 20):
        random = Random(number)
        schedule = random_lowered_schedule(random)
        costs = random_costs(random, schedule)
        played, predicted = play(schedule, costs), simulate(schedule, costs)
        assert played.start_ns == predicted.start_ns
        assert played.end_ns == predicted.end_ns


@pytest.mark.parametrize("seed", range(0, 100, 20))
def test_virtual_times_equal_the_simulation_on_braids(seed: int) -> None:
    for number in range(seed, seed + 20):
        random = Random(number)
        schedule = lower(with_random_braids(random, random_schedule(random)), clip=True)
        costs = random_costs(random, schedule)
        played, predicted = play(schedule, costs), simulate(schedule, costs)
        assert played.start_ns == predicted.start_ns
        assert played.end_ns == predicted.end_ns


def test_table_costs_are_charged_without_running() -> None:
    schedule = lower(gpipe(ScheduleShape(1, 1)))
    program = WorkerProgram(schedule, 0)
    durations = Durations(program, CostTable.uniform(1, 1, forward_ns=7))

    def fail() -> None:
        raise AssertionError

    assert charge_table(durations)(0, fail) == 7


def test_thread_time_counts_work_and_not_sleep() -> None:
    def work() -> None:
        end_ns = time.thread_time_ns() + 2_000_000
        while time.thread_time_ns() < end_ns:
            pass

    assert 2_000_000 <= charge_thread_time(0, work) < 4_000_000
    assert charge_thread_time(0, lambda: time.sleep(0.005)) < 2_000_000


def test_sleeping_workers_keep_the_times_of_compute_and_links() -> None:
    # Two workers, one microbatch: F 10 ms, message (2 ms on the link, 3 ms latency), F 10 ms,
    # B 20 ms, message back, B 20 ms: 10 + 5 + 10 + 20 + 5 + 20 = 70 ms.
    ms = 1_000_000
    schedule = lower(gpipe(ScheduleShape(2, 1)))
    costs = replace(
        CostTable.uniform(2, 2, forward_ns=10 * ms, backward_ns=20 * ms, latency_ns=3 * ms),
        forward_bytes=np.array([2000, 0]),
        backward_bytes=np.array([0, 2000]),
        bytes_per_s=np.full((2, 2), 1_000_000),
    )
    assert simulate(schedule, costs).step_ns == 70 * ms

    played = sleep(schedule, costs)
    assert 70 * ms <= played.step_ns < 105 * ms
    for worker in range(2):
        for action, start_ns, end_ns in played.spans(worker):
            if action.kind in MESSAGE_KINDS:
                assert end_ns - start_ns == 2 * ms


def test_sleeping_copies_run_beside_compute_and_are_waited_for() -> None:
    # F 0-2, 2-4; out 2-12, so FREE ends at 12; back 12-22; B 12-15, then 22-25: 25 ms.
    ms = 1_000_000
    row = "0F0 0OFFLOAD0 0F1 0FREE0 0RELOAD0 0B1 0B0"
    schedule = Schedule("test", 1, 2, (tuple(map(parse_action, row.split())),))
    costs = CostTable.uniform(1, 1, forward_ns=2 * ms, backward_ns=3 * ms)
    for kind in (Kind.OFFLOAD, Kind.RELOAD):
        costs.time_ns[0, 0, KIND_INDEX[kind]] = 10 * ms
    assert simulate(schedule, costs).step_ns == 25 * ms
    assert 25 * ms <= sleep(schedule, costs).step_ns < 50 * ms


def test_sleeping_collectives_start_with_their_last_member_and_run_beside_compute() -> None:
    # Worker 0 is ready to reduce after 2 ms, worker 1 after 10 ms; it takes 5 ms: both are done
    # with their STEP of 1 ms after 16 ms. Worker 0 sleeps its side work of 12 ms meanwhile.
    ms = 1_000_000
    rows = ("0F0 0B0 0REDUCE 0X:side 0STEP", "0F1 0F2 0B1 0B2 0REDUCE 0STEP")
    schedule = Schedule("test", 1, 3, tuple(tuple(map(parse_action, row.split())) for row in rows))
    costs = replace(CostTable.uniform(2, 1), side_ns={"side": 12 * ms})
    for kind, (first, second) in {
        Kind.F: (1 * ms, 2 * ms),
        Kind.B: (1 * ms, 3 * ms),
        Kind.REDUCE: (4 * ms, 5 * ms),
        Kind.STEP: (1 * ms, 1 * ms),
    }.items():
        costs.time_ns[:, 0, KIND_INDEX[kind]] = first, second
    assert simulate(schedule, costs).step_ns == 16 * ms
    played = sleep(schedule, costs)
    assert 16 * ms <= played.step_ns < 32 * ms


def test_measured_costs_are_kept_slice_by_slice() -> None:
    schedule = lower(SCHEDULES["seq1f1b"](ScheduleShape(2, 3, num_slices=3)))
    plain = CostTable.uniform(2, 2, latency_ns=4)
    slices = SliceCosts.equal(plain, 3)
    slices.time_ns[:] += np.arange(1, 4)
    timeline = simulate(schedule, replace(plain, slices=slices))
    measured = measured_costs([timeline], plain)
    assert simulate(schedule, measured) == timeline
    # B took 2 + 1, 2 + 2 and 2 + 3; all slices together have the median.
    assert measured.slices is not None
    assert measured.slices.time_ns[0, 0, KIND_INDEX[Kind.B]].tolist() == [3, 4, 5]
    assert measured.time_ns[0, 0, KIND_INDEX[Kind.B]] == 4
