"""What interleaving adds: chunks, groups of microbatches, and a warm-up that covers both."""

import pytest

from evener.ir.action import Kind
from evener.ir.check import check
from evener.ir.passes import lower
from evener.schedules import ScheduleShape, interleaved_one_f_one_b, one_f_one_b
from evener.sim import simulate
from evener.testing.worlds import unit_costs


def test_stages_are_dealt_round_robin() -> None:
    schedule = interleaved_one_f_one_b(ScheduleShape(3, 6, 2))
    assert schedule.stages_of_worker == ((0, 3), (1, 4), (2, 5))


def test_forwards_of_a_multiple_of_the_workers_are_those_of_the_paper() -> None:
    # p = 2, v = 2, m = 4: two microbatches through chunk 0, the same two through chunk 1, the next.
    first, _ = interleaved_one_f_one_b(ScheduleShape(2, 4, 2)).workers
    forwards = [str(action) for action in first if action.kind is Kind.F]
    assert forwards == ["0F0", "0F1", "2F0", "2F1", "0F2", "0F3", "2F2", "2F3"]


def test_the_bubble_is_divided_by_the_chunks() -> None:
    # The same layers as 4 stages of F = 6, B = 12 or as 8, 12 stages of 3 + 6, 2 + 4 ns:
    # bubbles (p-1)(tF+tB)/v = 3 * 18 / v = 54, 27, 18 on 8 * 18 = 144 of work.
    steps = []
    for chunks in (1, 2, 3):
        shape = ScheduleShape(4, 8, chunks)
        costs = unit_costs(4, shape.num_stages)
        steps.append(simulate(interleaved_one_f_one_b(shape), costs).step_ns * 6 // chunks)
    assert steps == [144 + 54, 144 + 27, 144 + 18]


def test_one_chunk_takes_as_long_as_one_f_one_b() -> None:
    shape = ScheduleShape(4, 6)
    costs = unit_costs(4, 4)
    interleaved = simulate(interleaved_one_f_one_b(shape), costs)
    assert interleaved.step_ns == simulate(one_f_one_b(shape), costs).step_ns


@pytest.mark.parametrize("num_microbatches", [5, 6, 7, 9, 10, 11, 13])
def test_no_multiple_of_the_workers_has_no_larger_bubble(num_microbatches: int) -> None:
    # p = 4, v = 3, F + B = 3: the bubble stays (p-1) * 3 = 9.  With a last group of the one or two
    # microbatches that are left over, the order of the paper waits for itself (m = 5, 9, 13) or
    # takes 20 longer (m = 6).
    shape = ScheduleShape(4, num_microbatches, 3)
    schedule = interleaved_one_f_one_b(shape)
    check(lower(schedule))
    assert simulate(schedule, unit_costs(4, 12)).step_ns == 9 * num_microbatches + 9
