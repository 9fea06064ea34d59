"""ZB-V: no worker is idle between its first and its last action, in the memory of 1F1B."""

from dataclasses import replace

import pytest

from evener.ir.check import check
from evener.ir.memory import peak_in_flight
from evener.schedules import PipelineTimes, ScheduleShape, StageTimes
from evener.schedules.zb_v import zb_v
from evener.sim import simulate
from evener.testing.worlds import pipeline_costs, unequal_times, unit_costs


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("beyond", [0, 1, 9])
def test_zero_span_bubble_at_unit_times(num_workers: int, beyond: int) -> None:
    num_microbatches = 2 * num_workers + beyond
    schedule = zb_v(ScheduleShape(num_workers, num_microbatches, 2))
    timeline = simulate(schedule, unit_costs(num_workers, 2 * num_workers))
    for worker in range(num_workers):
        spans = list(timeline.spans(worker))
        assert spans[0].start_ns == worker
        assert spans[-1].end_ns == worker + 6 * num_microbatches
    # 2p stages of half the layers: the p microbatches that 1F1B holds on worker 0.
    assert peak_in_flight(schedule) == (2 * num_workers,) * num_workers


def test_the_v_is_local_at_its_turns() -> None:
    schedule = zb_v(ScheduleShape(3, 6, 2))
    assert schedule.stages_of_worker == ((0, 5), (1, 4), (2, 3))


def test_times_decide_the_order() -> None:
    shape = ScheduleShape(4, 12, 2)
    times = PipelineTimes.equal(8, StageTimes(10, 12, 8), message_ns=3)
    costs = pipeline_costs(4, times)
    adapted, plain = (simulate(zb_v(shape, given), costs).step_ns for given in (times, None))
    assert adapted < plain


def test_caps_are_kept() -> None:
    # Per worker, twice one microbatch of both its stages: 10 40 5 10 | 40 5 10 40 bytes.
    times = unequal_times(8)
    caps = (2 * (10 + 40), 2 * (40 + 10), 2 * (5 + 5), 2 * (10 + 40))
    schedule = zb_v(ScheduleShape(4, 8, 2), replace(times, cap_bytes=caps))
    check(schedule, memory=pipeline_costs(4, times).memory, cap_bytes=caps)
