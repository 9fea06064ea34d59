"""Every registered schedule keeps what generators promise, and the suite notices who does not."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleEntry, ScheduleShape, one_f_one_b
from evener.testing.conformance import (
    ConformanceCase,
    check_deterministic,
    check_schedule_generator,
    conformance_cases,
)

CASES = [case for entry in SCHEDULES.values() for case in conformance_cases(entry)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_schedule(case: ConformanceCase) -> None:
    case.check()


GOOD = SCHEDULES["one_f_one_b"]
SHAPE = ScheduleShape(2, 3)


def with_workers(change: Callable[[list[list[Action]]], None]) -> ScheduleEntry:
    """1F1B with its lists changed after generation."""

    def generator(shape: ScheduleShape) -> Schedule:
        schedule = one_f_one_b(shape)
        workers = [list(actions) for actions in schedule.workers]
        change(workers)
        return replace(schedule, workers=tuple(map(tuple, workers)))

    return replace(GOOD, generator=generator)


def swap_first_forward_and_backward(workers: list[list[Action]]) -> None:
    # Worker 1 runs 1F0 1B0 1F1 ...; a backward before its forward can never start.
    workers[1][0], workers[1][1] = workers[1][1], workers[1][0]


def drop_last(workers: list[list[Action]]) -> None:
    workers[0].pop()


def repeat_last(workers: list[list[Action]]) -> None:
    workers[0].append(workers[0][-1])


def add_step(workers: list[list[Action]]) -> None:
    workers[0].append(Action(0, Kind.STEP))


def alternate() -> Callable[[list[list[Action]]], None]:
    """Change every second schedule: 0B0 and 0F2 trade places, which is legal too."""
    calls = itertools.count()

    def change(workers: list[list[Action]]) -> None:
        if next(calls) % 2:
            workers[0][2], workers[0][3] = workers[0][3], workers[0][2]

    return change


def test_a_good_one_passes() -> None:
    check_schedule_generator(GOOD, [SHAPE])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (with_workers(swap_first_forward_and_backward), "1B0"),
        (with_workers(drop_last), "0B2"),
        (with_workers(repeat_last), "0B2"),
        (with_workers(add_step), "STEP"),
        (replace(GOOD, generator=lambda shape: one_f_one_b(SHAPE, max_in_flight=1)), "takes"),
        (replace(GOOD, makespan_ns=lambda shape, times: 8), "takes 12 ns, not 8"),
        (replace(GOOD, peak_in_flight=lambda shape: (2, 2)), r"in flight \(2, 1\), not \(2, 2\)"),
        (replace(GOOD, generator=lambda shape: one_f_one_b(ScheduleShape(2, 4))), "stages"),
        (replace(GOOD, unsupported=lambda shape: "too dear"), "supports none of 1 shapes"),
    ],
)
def test_a_broken_promise_is_noticed(entry: ScheduleEntry, words: str) -> None:
    # 2 workers, 3 microbatches, F = I = W = 1: (3 + 2 - 1) slots of 3 ns are 12 ns.
    with pytest.raises((AssertionError, ScheduleError), match=words):
        check_schedule_generator(entry, [SHAPE])


def test_chance_is_noticed() -> None:
    entry = with_workers(alternate())
    with pytest.raises(AssertionError, match="a second call gives another one"):
        check_deterministic(entry, SHAPE)


def test_accepting_what_is_declared_unsupported_is_noticed() -> None:
    entry = replace(GOOD, unsupported=lambda s: "one microbatch" if s == SHAPE else None)
    with pytest.raises(AssertionError, match="accepts 2x1 stages, 3 mb, but declares"):
        check_schedule_generator(entry, [ScheduleShape(2, 2), SHAPE])


def test_refusing_for_another_reason_is_noticed() -> None:
    entry = replace(GOOD, unsupported=lambda s: "odd" if s.chunks_per_worker == 2 else None)
    with pytest.raises(AssertionError, match="declared is 'odd'"):
        check_schedule_generator(entry, [SHAPE, ScheduleShape(2, 3, 2)])
