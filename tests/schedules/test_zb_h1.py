"""ZB-H1 against 1F1B with the same split backward."""

import itertools

import numpy as np
import pytest

from evener.ir.memory import peak_in_flight
from evener.schedules import ScheduleShape, one_f_one_b, split_backward, zb_h1, zb_h2
from evener.sim import makespans, simulate
from evener.testing.worlds import equal_costs, unit_costs


def test_the_bubble_where_a_greedy_order_misses_it() -> None:
    # Unit times, bubble (p-1)(1+1-1): 3 at p = 4 and 7 at p = 8; taking W whenever nothing else is
    # ready ends at 5 and 9.
    assert simulate(zb_h1(ScheduleShape(4, 12)), unit_costs(4, 4)).step_ns == 3 * 12 + 3
    assert simulate(zb_h1(ScheduleShape(8, 24)), unit_costs(8, 8)).step_ns == 3 * 24 + 7


def test_every_worker_holds_p() -> None:
    assert peak_in_flight(zb_h1(ScheduleShape(4, 12))) == (4, 4, 4, 4)


@pytest.mark.parametrize("num_workers", [2, 3, 4, 6])
@pytest.mark.parametrize("num_microbatches", [1, 2, 5, 12])
def test_never_slower_than_one_f_one_b_on_equal_stages(
    num_workers: int, num_microbatches: int
) -> None:
    # All F, I, W from 1 to 7 ns, most of them outside of the range of the closed form.
    triples = list(itertools.product(range(1, 8), repeat=3))
    shape = ScheduleShape(num_workers, num_microbatches)
    time_ns = np.stack(
        [
            equal_costs(
                num_workers, num_workers, forward_ns=f, input_grad_ns=i, weight_grad_ns=w
            ).time_ns
            for f, i, w in triples
        ]
    )
    costs = unit_costs(num_workers, num_workers)
    baseline = makespans(split_backward(one_f_one_b(shape)), costs, time_ns)
    h1 = makespans(zb_h1(shape), costs, time_ns)
    h2 = makespans(zb_h2(shape), costs, time_ns)
    assert (h1 <= baseline).all()
    assert (h2 <= h1).all()
