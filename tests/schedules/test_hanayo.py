"""Hanayo with one, two and four waves."""

from fractions import Fraction

import pytest

from evener.errors import ScheduleError
from evener.ir.memory import peak_in_flight
from evener.ir.schedule import Schedule
from evener.schedules import ScheduleShape, StageTimes
from evener.schedules.hanayo import HANAYO, hanayo
from evener.sim import simulate
from evener.testing.worlds import equal_costs

EQUAL = StageTimes(2, 1, 1)  # tB = tF
DOUBLE = StageTimes(1, 1, 1)  # tB = 2tF


def with_waves(num_workers: int, num_microbatches: int, num_waves: int) -> Schedule:
    return hanayo(ScheduleShape(num_workers, num_microbatches, 2 * num_waves))


def bubble(schedule: Schedule, times: StageTimes) -> Fraction:
    costs = equal_costs(
        schedule.num_workers,
        schedule.num_stages,
        forward_ns=times.forward_ns,
        input_grad_ns=times.input_grad_ns,
        weight_grad_ns=times.weight_grad_ns,
    )
    cells = schedule.num_microbatches * schedule.num_stages // schedule.num_workers
    busy_ns = cells * (times.forward_ns + times.backward_ns)
    return 1 - Fraction(busy_ns, simulate(schedule, costs).step_ns)


@pytest.mark.parametrize("num_waves", [1, 2, 4])
@pytest.mark.parametrize("num_workers", [2, 3, 4, 8])
@pytest.mark.parametrize("num_units", [1, 3])
def test_bubble_where_a_backward_takes_as_long_as_a_forward(
    num_waves: int, num_workers: int, num_units: int
) -> None:
    # m microbatches work for 4Wm slots, and 2(p-1) slots are idle: (p-1)/(2Wm+p-1).
    p, m = num_workers, num_units * num_workers
    found = bubble(with_waves(p, m, num_waves), EQUAL)
    assert found == Fraction(p - 1, 2 * num_waves * m + p - 1)


@pytest.mark.parametrize("num_waves", [1, 2, 4])
@pytest.mark.parametrize("num_workers", [2, 3, 4, 8])
def test_bubble_of_one_unit_where_it_takes_twice_as_long(num_waves: int, num_workers: int) -> None:
    # 6Wp of work, 2(p-1) x 2 idle: for p = 4 it is 12/36, 12/60 and 12/108 with 1, 2, 4 waves.
    p = num_workers
    found = bubble(with_waves(p, p, num_waves), DOUBLE)
    assert found == Fraction(4 * (p - 1), 6 * num_waves * p + 4 * (p - 1))


def test_a_worker_holds_all_of_a_unit_except_behind_the_last_turn() -> None:
    # 4 workers, one wave: 4 microbatches of the first stage, and of stage 7 - w at most w + 1.
    assert peak_in_flight(with_waves(4, 12, 1)) == (5, 6, 7, 8)
    # Two waves: three such stages.
    assert peak_in_flight(with_waves(4, 12, 2)) == (13, 14, 15, 16)


@pytest.mark.parametrize("num_microbatches", range(1, 15))
def test_closed_form_of_equal_times_holds_for_every_number_of_microbatches(
    num_microbatches: int,
) -> None:
    for num_workers, chunks in ((1, 2), (3, 2), (4, 4)):
        shape = ScheduleShape(num_workers, num_microbatches, chunks)
        costs = equal_costs(
            num_workers, shape.num_stages, forward_ns=2, input_grad_ns=1, weight_grad_ns=1
        )
        assert HANAYO.makespan_ns(shape, EQUAL) == simulate(hanayo(shape), costs).step_ns


@pytest.mark.parametrize("chunks", [1, 3])
def test_half_waves_are_refused_with_a_way_out(chunks: int) -> None:
    with pytest.raises(ScheduleError, match=f"chunks_per_worker is {chunks}; ask for 2, 4 or 8"):
        hanayo(ScheduleShape(4, 4, chunks))
