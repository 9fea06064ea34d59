"""ZB-H2: no worker is ever idle between its first and its last action."""

import pytest

from evener.ir.memory import peak_in_flight
from evener.schedules import ScheduleShape, zb_h2
from evener.sim import simulate
from evener.testing.worlds import equal_costs, unit_costs


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("beyond", [0, 1, 9])
def test_zero_span_bubble_at_unit_times(num_workers: int, beyond: int) -> None:
    num_microbatches = 2 * num_workers - 1 + beyond
    schedule = zb_h2(ScheduleShape(num_workers, num_microbatches))
    timeline = simulate(schedule, unit_costs(num_workers, num_workers))
    for worker in range(num_workers):
        spans = list(timeline.spans(worker))
        assert spans[0].start_ns == worker
        assert spans[-1].end_ns == worker + 3 * num_microbatches
    assert peak_in_flight(schedule) == (2 * num_workers - 1,) * num_workers


def test_the_bubble_of_unequal_times() -> None:
    # F 10, I 12, W 8: worker 0 waits (p-1)(10 + 12 - 2*8) = 18 at p = 4, but the last worker starts
    # 3 * 10 late and works without a wait: 12 * 30 + max(18, 30).
    costs = equal_costs(4, 4, forward_ns=10, input_grad_ns=12, weight_grad_ns=8)
    timeline = simulate(zb_h2(ScheduleShape(4, 12)), costs)
    assert list(timeline.spans(0))[-1].end_ns == 360 + 18
    assert timeline.step_ns == 360 + 30


def test_few_microbatches_hold_no_more_forwards_than_help() -> None:
    # p = 4, m = 4: as many in flight as ZB-H1, and the same step: (4+3)(1+1) + 1 = 15.
    schedule = zb_h2(ScheduleShape(4, 4))
    assert peak_in_flight(schedule) == (4, 4, 4, 4)
    assert simulate(schedule, unit_costs(4, 4)).step_ns == 15
