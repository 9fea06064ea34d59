"""Chimera against the bubbles and the memory of its paper."""

from fractions import Fraction

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.check import check
from evener.ir.memory import peak_in_flight
from evener.ir.passes import lower
from evener.schedules import ScheduleShape, StageTimes
from evener.schedules.chimera import CHIMERA, chimera
from evener.sim import simulate
from evener.testing.worlds import equal_costs

EQUAL = StageTimes(2, 1, 1)  # tB = tF
DOUBLE = StageTimes(1, 1, 1)  # tB = 2tF


def step_ns(num_workers: int, num_microbatches: int, times: StageTimes) -> int:
    costs = equal_costs(
        num_workers,
        num_workers,
        forward_ns=times.forward_ns,
        input_grad_ns=times.input_grad_ns,
        weight_grad_ns=times.weight_grad_ns,
    )
    return simulate(chimera(ScheduleShape(num_workers, num_microbatches)), costs).step_ns


def bubble(num_workers: int, num_microbatches: int, times: StageTimes) -> Fraction:
    busy_ns = num_microbatches * (times.forward_ns + times.backward_ns)
    return 1 - Fraction(busy_ns, step_ns(num_workers, num_microbatches, times))


@pytest.mark.parametrize("num_workers", [2, 4, 8, 16])
@pytest.mark.parametrize("num_units", [1, 2, 4])
def test_published_bubble_where_a_backward_takes_as_long_as_a_forward(
    num_workers: int, num_units: int
) -> None:
    # Table 2: (D-2)/(2N+D-2), direct concatenation included.
    d, n = num_workers, num_units * num_workers
    assert bubble(d, n, EQUAL) == Fraction(d - 2, 2 * n + d - 2)


@pytest.mark.parametrize("num_workers", [2, 4, 8, 16])
def test_published_bubble_of_one_unit_where_it_takes_twice_as_long(num_workers: int) -> None:
    # Section 3.1: (D-2)/(3N/2+D-2) at N = D; for D = 4 a step of 16, of which 12 are work.
    d = num_workers
    assert bubble(d, d, DOUBLE) == Fraction(2 * (d - 2), 3 * d + 2 * (d - 2))


def test_the_step_of_the_papers_figure() -> None:
    # Figure 3, D = N = 4: 4 forwards and 6 backwards are on the critical path: 4 + 6 x 2.
    assert step_ns(4, 4, DOUBLE) == 16


def test_units_of_unequal_times_leave_what_doubling_and_halving_would_save() -> None:
    # D = 4: 16, and 12 + 2 (2 - 1) for each further unit.
    assert [step_ns(4, 4 * units, DOUBLE) for units in (1, 2, 3)] == [16, 30, 44]


@pytest.mark.parametrize("num_workers", [2, 4, 6])
@pytest.mark.parametrize("num_microbatches", range(1, 20))
def test_closed_form_of_equal_times_holds_for_every_number_of_microbatches(
    num_workers: int, num_microbatches: int
) -> None:
    shape = ScheduleShape(num_workers, num_microbatches)
    assert CHIMERA.makespan_ns(shape, EQUAL) == step_ns(num_workers, num_microbatches, EQUAL)


def test_memory_is_between_half_and_all_of_a_unit() -> None:
    # Table 2: activations of D/2+1 microbatches at the ends, of D in the middle.
    assert peak_in_flight(chimera(ScheduleShape(8, 24))) == (5, 6, 7, 8, 8, 7, 6, 5)


def test_each_stage_is_reduced_as_soon_as_its_last_backward_has_ended() -> None:
    # Worker 0 of 4 ends with 0B1; the mirrored stage 3, which ends before, is reduced before.
    lowered = lower(chimera(ScheduleShape(4, 4)))
    check(lowered)
    rest = [a for a in lowered.workers[0] if a.kind in (Kind.B, Kind.REDUCE)]
    reduce_3 = rest.index(Action(3, Kind.REDUCE))
    assert rest[reduce_3 - 1] == Action(3, Kind.B, 3)
    assert rest[-2:] == [Action(0, Kind.B, 1), Action(0, Kind.REDUCE)]


def test_several_chunks_are_refused_with_a_way_out() -> None:
    with pytest.raises(ScheduleError, match="chunks_per_worker is 2; ask for 1, or take bitpipe"):
        chimera(ScheduleShape(4, 4, 2))
