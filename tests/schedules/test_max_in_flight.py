"""A limit on the microbatches in flight is kept, and costs time only below the paper's own."""

from collections.abc import Callable

import pytest

from evener.errors import ScheduleError
from evener.ir.check import check
from evener.ir.memory import peak_in_flight
from evener.ir.schedule import Schedule
from evener.schedules import ScheduleShape, one_f_one_b, zb_h1, zb_h2
from evener.sim import simulate
from evener.testing.worlds import unit_costs

LIMITED: list[Callable[..., Schedule]] = [one_f_one_b, zb_h1, zb_h2]


@pytest.mark.parametrize("generator", LIMITED)
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("num_microbatches", [1, 3, 8])
def test_the_limit_is_kept(
    generator: Callable[..., Schedule], limit: int, num_microbatches: int
) -> None:
    schedule = generator(ScheduleShape(4, num_microbatches), max_in_flight=limit)
    check(schedule)
    assert max(peak_in_flight(schedule)) <= limit


@pytest.mark.parametrize("generator", LIMITED)
def test_one_in_flight_runs_one_after_the_other(generator: Callable[..., Schedule]) -> None:
    # 3 microbatches pass 4 workers down (F = 1) and up, each alone.  Up takes 4 B = 8; split it
    # takes 4 I = 4 and the W of worker 0, the others' W run meanwhile: 4 + 4 + 1 = 9.  The next
    # forward starts on worker 0 after that.
    schedule = generator(ScheduleShape(4, 3), max_in_flight=1)
    each_ns = 12 if generator is one_f_one_b else 9
    assert simulate(schedule, unit_costs(4, 4)).step_ns == 3 * each_ns


def test_zb_h2_trades_memory_for_bubble_between_p_and_2p_minus_1() -> None:
    # p = 4, m = 12, unit times: 36 of work, and each microbatch beyond p = 4 fills one unit of the
    # three that H1 waits; the last worker starts 3 late, so that the step never gets below 39.
    shape = ScheduleShape(4, 12)
    assert zb_h2(shape, max_in_flight=4).workers == zb_h1(shape).workers
    spans = []
    for limit in (4, 5, 6, 7):
        timeline = simulate(zb_h2(shape, max_in_flight=limit), unit_costs(4, 4))
        of_worker = [list(timeline.spans(worker)) for worker in range(4)]
        spans.append(max(spans[-1].end_ns - spans[0].start_ns for spans in of_worker))
    assert spans == [39, 38, 37, 36]


@pytest.mark.parametrize("generator", LIMITED)
def test_a_limit_above_the_papers_changes_nothing(generator: Callable[..., Schedule]) -> None:
    shape = ScheduleShape(3, 7)
    assert generator(shape, max_in_flight=100) == generator(shape)


@pytest.mark.parametrize("generator", LIMITED)
def test_no_room_at_all_is_refused(generator: Callable[..., Schedule]) -> None:
    with pytest.raises(ScheduleError) as caught:
        generator(ScheduleShape(2, 2), max_in_flight=0)
    assert str(caught.value) == (
        f"{generator.__name__} cannot keep this limit\n"
        "  max_in_flight is 0, but at least 1 microbatch must be in flight; "
        "ask for 1 or more, or leave it out for the paper's own limit"
    )
