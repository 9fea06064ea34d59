"""STP: bubble, memory and braids of its published program."""

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable, peak_bytes, peak_in_flight
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.schedules import ScheduleShape
from evener.schedules.stp import stp
from evener.sim import simulate
from evener.testing.worlds import equal_costs, unit_costs


def held_activations(schedule: Schedule) -> tuple[int, ...]:
    """Per worker, of how many pairs of stage and microbatch, until their B or I has ended."""
    one = {Resource.ACTIVATION: (1,) * schedule.num_stages}
    return peak_bytes(schedule, MemoryTable(one, (0,) * schedule.num_workers))


def check_step_and_memory(num_workers: int, num_microbatches: int) -> None:
    p, m = num_workers, num_microbatches
    schedule = stp(ScheduleShape(p, m, 2))
    # (p-1)(F+I-W) beside 2m(F+I+W) of work, with F = I = W = 1.
    assert simulate(schedule, unit_costs(p, 2 * p)).step_ns == 6 * m + p - 1, (p, m)
    assert max(held_activations(schedule)) == 3 * p + 1, (p, m)


@pytest.mark.parametrize("num_workers", range(2, 9))
def test_bubble_and_memory_at_unit_times(num_workers: int) -> None:
    # From 2p microbatches on; from 3p - 1 on the published program runs as it is.
    for num_microbatches in (2 * num_workers, 2 * num_workers + 1, 3 * num_workers - 1, 31):
        check_step_and_memory(num_workers, num_microbatches)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", range(2, 9))
def test_bubble_and_memory_at_unit_times_everywhere(num_workers: int) -> None:
    for num_microbatches in range(max(8, 2 * num_workers), 49):
        check_step_and_memory(num_workers, num_microbatches)


@pytest.mark.parametrize("num_workers", [2, 4, 8])
def test_bubble_where_the_input_gradient_takes_longest(num_workers: int) -> None:
    # (10, 12, 8): 14 for every worker but one.
    p, m = num_workers, 3 * num_workers
    costs = equal_costs(p, 2 * p, forward_ns=10, input_grad_ns=12, weight_grad_ns=8)
    step_ns = simulate(stp(ScheduleShape(p, m, 2)), costs).step_ns
    assert step_ns == 2 * m * 30 + 14 * (p - 1)


def test_owed_weight_gradients_are_held_beside_the_activations() -> None:
    # 3p + max(1, w): worker w ends with 2w W.
    assert peak_in_flight(stp(ScheduleShape(6, 20, 2))) == (19, 19, 20, 21, 22, 23)


@pytest.mark.parametrize(("num_workers", "num_microbatches"), [(2, 6), (4, 12), (4, 20), (8, 30)])
def test_every_worker_braids_until_its_forwards_end(
    num_workers: int, num_microbatches: int
) -> None:
    # From the first backward on, what follows a forward is a backward or a W.
    for actions in stp(ScheduleShape(num_workers, num_microbatches, 2)).workers:
        kinds = [action.kind for action in actions]
        first = next(place for place, kind in enumerate(kinds) if kind in (Kind.B, Kind.I))
        steady = [place for place in range(first, len(kinds)) if kinds[place] is Kind.F]
        assert all(kinds[place + 1] is not Kind.F for place in steady)


def test_the_first_worker_of_four() -> None:
    # p = 4, r = 0: 6 F0, F0 F1, F0, three times F1&I1 F0&W, then F1&B1, F0&B0 in turn.
    names = {0: "0", 7: "1"}
    actions = stp(ScheduleShape(4, 12, 2)).workers[0]
    text = " ".join(f"{action.kind}{names[action.stage]}" for action in actions[:27])
    assert text == (
        "F0 F0 F0 F0 F0 F0 F0 F1 F0 F1 I1 F0 W1 F1 I1 F0 W1 F1 I1 F0 W1 F1 B1 F0 B0 F1 B1"
    )


def test_other_chunks_are_refused_with_a_way_out() -> None:
    with pytest.raises(ScheduleError, match="but chunks_per_worker is 3; ask for 2"):
        stp(ScheduleShape(2, 4, 3))
