"""STP: bubble, memory and braids of its published program."""

from dataclasses import replace

import numpy as np
import pytest

from evener.cost.table import KIND_INDEX, CostTable
from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable, peak_bytes, peak_in_flight
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleShape
from evener.schedules.stp import stp
from evener.sim import bubbles, simulate
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
    # (10, 12, 8): 12 + (12-8) + 2(10-8) = 20 for every worker but one; F+I-W would be 14.
    p, m = num_workers, 3 * num_workers
    costs = equal_costs(p, 2 * p, forward_ns=10, input_grad_ns=12, weight_grad_ns=8)
    step_ns = simulate(stp(ScheduleShape(p, m, 2)), costs).step_ns
    assert step_ns == 2 * m * 30 + 20 * (p - 1)


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


def tensor_parallel_costs(num_workers: int, *, all_reduce_ns: int) -> CostTable:
    """F, I and W compute for 10 each; F and I all-reduce besides, B hides that under its W."""
    costs = equal_costs(
        num_workers, 2 * num_workers, forward_ns=10, input_grad_ns=10, weight_grad_ns=10
    )
    waits_ns = np.zeros_like(costs.time_ns)
    waits_ns[:, :, [KIND_INDEX[Kind.F], KIND_INDEX[Kind.I]]] = all_reduce_ns
    return replace(costs, time_ns=costs.time_ns + waits_ns, all_reduce_ns=waits_ns)


def exposed_all_reduces(name: str, shape: ScheduleShape, *, all_reduce_ns: int) -> list[float]:
    """Per worker, what its compute stream is held longer than it computes, in all-reduces."""
    costs = tensor_parallel_costs(shape.num_workers, all_reduce_ns=all_reduce_ns)
    busy_ns = bubbles(simulate(SCHEDULES[name](shape), costs)).busy_ns
    return [(busy - 2 * shape.num_microbatches * 30) / all_reduce_ns for busy in busy_ns]


FROM_3P_1_ON = [(1, 2), (1, 4), (2, 5), (2, 12), (3, 8), (3, 9), (4, 11), (4, 24), (5, 15)]


@pytest.mark.parametrize("all_reduce_ns", [1, 3, 10])
@pytest.mark.parametrize(("p", "m"), FROM_3P_1_ON)
def test_all_reduces_hide_in_braids(p: int, m: int, all_reduce_ns: int) -> None:
    # Published, in all-reduces: at most 2p + 1 for STP, 2m for interleaved 1F1B, 4m for ZB-V.
    # STP: 2p forwards of the fill, and one more where p + 1 - w of chunk 0 leave one alone.
    shape = ScheduleShape(p, m, 2)
    exposed = exposed_all_reduces("stp", shape, all_reduce_ns=all_reduce_ns)
    assert exposed == [2 * p + (worker % 2 == 0) for worker in range(p)]
    interleaved = exposed_all_reduces("interleaved_one_f_one_b", shape, all_reduce_ns=all_reduce_ns)
    assert interleaved == [2 * m] * p
    assert exposed_all_reduces("zb_v", shape, all_reduce_ns=all_reduce_ns) == [4 * m] * p


@pytest.mark.parametrize("all_reduce_ns", [1, 3, 10])
@pytest.mark.parametrize(("p", "m"), FROM_3P_1_ON)
def test_bubbles_of_both_parallelisms_add_up(p: int, m: int, all_reduce_ns: int) -> None:
    # The last worker ends the step: (p-1)(F+AR+I-W) of the pipeline, and 2p + 1 AR (even p: 2p).
    shape, costs = ScheduleShape(p, m, 2), tensor_parallel_costs(p, all_reduce_ns=all_reduce_ns)
    pipeline_ns = 2 * m * 30 + (p - 1) * (10 + all_reduce_ns)
    step_ns = simulate(stp(shape), costs).step_ns
    assert step_ns == pipeline_ns + (2 * p + p % 2) * all_reduce_ns
    # ZB-V, as it is searched here, waits as long and hides none.
    zb_v_ns = simulate(SCHEDULES["zb_v"](shape), costs).step_ns
    assert zb_v_ns == pipeline_ns + 4 * m * all_reduce_ns


@pytest.mark.parametrize("all_reduce_ns", [0, 3, 10])
def test_one_worker_with_and_without_braids(all_reduce_ns: int) -> None:
    # 0F0 1F0 0F1 (1F1 1B0) (0F2 0B0) (1F2 1B1) (0F3 0B1) (1F3 1B2) 0B2 1B3 0B3
    # 8 F of 10 and 8 B of 20 compute for 240.  Each F all-reduces: 3 stand alone, 5 beside a B.
    schedule = stp(ScheduleShape(1, 4, 2))
    costs = tensor_parallel_costs(1, all_reduce_ns=all_reduce_ns)
    assert simulate(schedule, costs).step_ns == 240 + 3 * all_reduce_ns
    in_turn = replace(schedule, braids=frozenset())
    assert simulate(in_turn, costs).step_ns == 240 + 8 * all_reduce_ns


@pytest.mark.parametrize("all_reduce_ns", [0, 3, 10])
def test_two_workers_with_and_without_braids(all_reduce_ns: int) -> None:
    # Worker 1: 1F0 2F0 1F1 2F1 (1F2 1F3) (2F2 2B0) (1F4 1B0) (2F3 2B1) (1F5 1B1) (2F4 2I2) 1B2
    # (2F5 2I3) 1B3 2B4 1B4 2B5 1B5 2W2 2W3.  It waits for 0F0, 10 and an all-reduce, and then for
    # nobody: 12 F, I and W of 10 compute for 360.  Of its 12 F and 2 I 4 stand alone.
    schedule = stp(ScheduleShape(2, 6, 2))
    costs = tensor_parallel_costs(2, all_reduce_ns=all_reduce_ns)
    assert simulate(schedule, costs).step_ns == (10 + all_reduce_ns) + 360 + 4 * all_reduce_ns
    in_turn = replace(schedule, braids=frozenset())
    assert simulate(in_turn, costs).step_ns == (10 + all_reduce_ns) + 360 + 14 * all_reduce_ns


def test_other_chunks_are_refused_with_a_way_out() -> None:
    with pytest.raises(ScheduleError, match="but chunks_per_worker is 3; ask for 2"):
        stp(ScheduleShape(2, 4, 3))
