"""Adaptra: the published steps under a slow link.  Times in ms of the paper are ns here."""

from dataclasses import replace

import pytest

from evener.ir.action import Kind
from evener.ir.check import check
from evener.ir.memory import peak_in_flight
from evener.ir.schedule import Schedule
from evener.schedules import PipelineTimes, ScheduleShape, StageTimes
from evener.schedules.adaptra import adaptra, warm_ups
from evener.schedules.list_scheduler import ListWorld, Priorities
from evener.sim import simulate
from evener.testing.worlds import pipeline_costs, unequal_times

TENS = StageTimes(10, 10, 10)


def slow_link(link: int, delay_ns: int) -> PipelineTimes:
    """Four equal stages; messages of one link take time."""
    messages = tuple(delay_ns if number == link else 0 for number in range(3))
    times = PipelineTimes.equal(4, TENS)
    return replace(times, forward_message_ns=messages, backward_message_ns=messages)


def step_ns(schedule: Schedule, times: PipelineTimes) -> int:
    return simulate(schedule, pipeline_costs(4, times)).step_ns


def first_backward(schedule: Schedule) -> tuple[int, ...]:
    """Per worker, how many forwards come before it."""
    return tuple([a.kind for a in row].index(Kind.I) for row in schedule.workers)


@pytest.mark.parametrize(
    ("delay_ns", "fixed_ns", "adapted_ns", "forwards"),
    [
        (0, 390, 390, (7, 5, 3, 1)),
        (10, 400, 400, (8, 5, 3, 1)),
        (15, 410, 405, (9, 5, 3, 1)),
        (20, 440, 410, (9, 5, 3, 1)),
        (30, 500, 420, (10, 5, 3, 1)),
    ],
)
def test_slow_first_link(
    delay_ns: int, fixed_ns: int, adapted_ns: int, forwards: tuple[int, ...]
) -> None:
    # 12 microbatches: 360 of work, 3 * 10 until the last worker starts.  The order for links
    # without delay loses more than the delay; x_0 = 5 + 2 + ceil(delay / 10) forwards hide it.
    shape, times = ScheduleShape(4, 12), slow_link(0, delay_ns)
    adapted = adaptra(shape, times)
    assert first_backward(adapted) == warm_ups(times) == forwards
    assert step_ns(adapted, times) == adapted_ns
    # Without the limit on memory that the paper's own simulator has not either.
    unlimited = ListWorld(
        slow_link(0, 0), num_workers=4, num_microbatches=12, workers=range(4)
    ).run(Priorities(least_forwards=(7, 5, 3, 1)))
    assert step_ns(unlimited.schedule("fixed"), times) == fixed_ns


@pytest.mark.parametrize(
    ("delay_ns", "zb_ns", "one_f_one_b_ns", "adapted_ns"),
    [(0, 930, 990, 930), (18, 1100, 1026, 948), (54, 1820, 1434, 984)],
)
def test_slow_last_link(delay_ns: int, zb_ns: int, one_f_one_b_ns: int, adapted_ns: int) -> None:
    # 30 microbatches.  ZB and 1F1B are orders made for links without delay: eager, as the paper's
    # simulator runs them, 1F1B with a whole backward.
    shape, times = ScheduleShape(4, 30), slow_link(2, delay_ns)
    world = ListWorld(slow_link(2, 0), num_workers=4, num_microbatches=30, workers=range(4))
    zb = world.run(Priorities(least_forwards=(7, 5, 3, 1)))
    one_f_one_b = world.run(Priorities(split_backward=False))
    assert step_ns(zb.schedule("zb"), times) == zb_ns
    assert step_ns(one_f_one_b.schedule("1F1B"), times) == one_f_one_b_ns
    assert step_ns(adaptra(shape, times), times) == adapted_ns


def test_the_slower_direction_counts_and_a_free_forward_hides_nothing() -> None:
    # x_2 = 1; x_1 = 1 + 2 + ceil(7 / 2) = 7; x_0 = 7 + 2 + ceil(3 / 3) = 10.
    times = PipelineTimes.equal(3, TENS)
    times = replace(
        times, forward_ns=(3, 2, 1), forward_message_ns=(3, 1), backward_message_ns=(0, 7)
    )
    assert warm_ups(times) == (10, 7, 1)
    assert warm_ups(replace(times, forward_ns=(3, 0, 1))) == (3 + 7 + 2 + 1, 1 + 2 + 7, 1)


def test_no_worker_holds_more_than_the_first_one_takes_in() -> None:
    times = slow_link(2, 54)
    assert peak_in_flight(adaptra(ScheduleShape(4, 30), times)) == (13, 13, 13, 13)


@pytest.mark.parametrize("caps", [(20, 80, 10, 20), (10, 80, 20, 80), (10, 40, 5, 10)])
def test_caps_are_kept_without_deadlock(caps: tuple[int, ...]) -> None:
    # Microbatches of 10 40 5 10 bytes; the warm-ups ask for many more than fit.
    times = unequal_times(4)
    schedule = adaptra(ScheduleShape(4, 9), replace(times, cap_bytes=caps))
    check(schedule, memory=pipeline_costs(4, times).memory, cap_bytes=caps)
