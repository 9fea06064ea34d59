"""BitPipe against the figures of its published order."""

from fractions import Fraction

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.passes import lower
from evener.schedules import ScheduleShape, StageTimes
from evener.schedules.bitpipe import BITPIPE, bitpipe
from evener.sim import bubbles, simulate
from evener.testing.worlds import equal_costs, unit_costs


@pytest.mark.parametrize(("num_workers", "step_ns", "busy_ns"), [(4, 28, 24), (8, 60, 48)])
def test_published_bubble_of_one_unit(num_workers: int, step_ns: int, busy_ns: int) -> None:
    # tB = 2tF, N = D: bubble (D-2)/(3N+D-2): 2/14 = 0.1429 for D = 4, 6/30 = 0.2000 for D = 8.
    d = num_workers
    timeline = simulate(bitpipe(ScheduleShape(d, d, 2)), unit_costs(d, 2 * d))
    assert timeline.step_ns == step_ns
    assert bubbles(timeline).busy_ns == (busy_ns,) * d
    assert 1 - Fraction(busy_ns, step_ns) == Fraction(d - 2, 3 * d + d - 2)


@pytest.mark.parametrize("num_workers", [2, 4, 6, 8])
def test_forwards_before_the_first_backward(num_workers: int) -> None:
    # Rank r warms up with D + D/2 + min(r, D-1-r) forwards; then each turn is F and B.
    d = num_workers
    schedule = bitpipe(ScheduleShape(d, d, 2))
    counts = [[a.kind for a in actions].index(Kind.B) for actions in schedule.workers]
    assert counts == [d + d // 2 + min(r, d - 1 - r) + 1 for r in range(d)]


def test_nothing_is_sent_where_a_v_turns() -> None:
    # 4 workers: stages 3 and 4 are on one worker in both directions, so of 7 edges 6 need messages.
    lowered = lower(bitpipe(ScheduleShape(4, 4, 2)))
    sends = [a for _, a in lowered.actions() if a.kind is Kind.SEND_F]
    assert len(sends) == 4 * 6
    assert all(action.stage != 3 for action in sends)


@pytest.mark.parametrize("num_workers", [2, 4, 6])
@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 4, 5, 6, 8, 9, 12, 17])
def test_closed_form_of_equal_times_holds_for_every_number_of_microbatches(
    num_workers: int, num_microbatches: int
) -> None:
    shape = ScheduleShape(num_workers, num_microbatches, 2)
    costs = equal_costs(
        num_workers, shape.num_stages, forward_ns=2, input_grad_ns=1, weight_grad_ns=1
    )
    found = simulate(bitpipe(shape), costs).step_ns
    assert BITPIPE.makespan_ns(shape, StageTimes(2, 1, 1)) == found


def test_other_chunks_are_refused_with_a_way_out() -> None:
    with pytest.raises(ScheduleError, match="but chunks_per_worker is 1; ask for 2"):
        bitpipe(ScheduleShape(4, 4))
