"""V-Half and V-Min: memory and bubble of 1F1B, divided."""

import math

import pytest

from evener.errors import ScheduleError
from evener.ir.memory import peak_in_flight
from evener.schedules import SCHEDULES, PipelineTimes, ScheduleShape, StageTimes
from evener.schedules.v_half import v_half
from evener.schedules.v_memory import Block
from evener.schedules.v_min import v_min
from evener.sim import bubbles, simulate
from evener.testing.worlds import pipeline_costs, unit_costs

WORKERS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16]


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("beyond", [0, 1, 7])
def test_half_the_bubble_in_half_the_memory(num_workers: int, beyond: int) -> None:
    p, m = num_workers, 2 * num_workers + beyond
    schedule = v_half(ScheduleShape(p, m, 2))
    # 1F1B over the same layers: (p-1) * 2 * (F+I+W) = 6(p-1) and 2p of our stages.
    assert simulate(schedule, unit_costs(p, 2 * p)).step_ns <= 6 * m + 3 * (p - 1)
    assert max(peak_in_flight(schedule)) <= p + 2


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("beyond", [0, 1, 7])
def test_two_thirds_of_the_bubble_in_a_third_of_the_memory(num_workers: int, beyond: int) -> None:
    p, m = num_workers, 2 * num_workers + beyond
    schedule = v_min(ScheduleShape(p, m, 2))
    assert simulate(schedule, unit_costs(p, 2 * p)).step_ns <= 6 * m + 4 * (p - 1)
    assert max(peak_in_flight(schedule)) <= math.ceil(2 * p / 3) + 2


@pytest.mark.parametrize(
    "times", [StageTimes(18513, 18086, 9331), StageTimes(10, 12, 8), StageTimes(1, 2, 5)], ids=str
)
@pytest.mark.parametrize(("name", "num_held"), [("v_half", 10), ("v_min", 8)])
def test_memory_is_kept_at_any_times(name: str, num_held: int, times: StageTimes) -> None:
    # p = 8: 2 * (8/2 + 1) and 2 * ceil(10/3) of the 16 of 1F1B.
    for message_ns in (0, times.forward_ns):
        pipeline = PipelineTimes.equal(16, times, message_ns=message_ns)
        schedule = SCHEDULES[name](ScheduleShape(8, 32, 2), pipeline)
        assert max(peak_in_flight(schedule)) <= num_held


def test_less_memory_costs_time() -> None:
    shape, times = ScheduleShape(8, 32, 2), PipelineTimes.equal(16, StageTimes(10, 12, 8))
    costs = pipeline_costs(8, times)
    shares = [
        bubbles(simulate(SCHEDULES[name](shape, times), costs)).bubble_fraction
        for name in ("zb_v", "v_half", "v_min")
    ]
    assert shares == sorted(shares)


def test_a_block_by_hand() -> None:
    # p = 2, hops 1: F down at 0 and 1, up at 2 and 3, I down at 4 and 5, up at 6 and 7.
    when = Block(hops=(1, 1, 1, 1)).when(ScheduleShape(2, 2, 2))
    assert when[0, :, 0].tolist() == [0, 1, 2, 3]
    assert when[1, :, 0].tolist() == [7, 6, 5, 4]
    assert (when[:, :, 1] - when[:, :, 0] == 6).all()
    # p = 2, hops 1 2 3 4, turns 5 6 7: 0 1 | 7 9 | 16 19 | 27 31.
    when = Block(hops=(1, 2, 3, 4), turns=(5, 6, 7)).when(ScheduleShape(2, 1, 2))
    assert when[0, :, 0].tolist() == [0, 1, 7, 9]
    assert when[1, :, 0].tolist() == [31, 27, 19, 16]


@pytest.mark.parametrize("name", ["zb_v", "v_half", "v_min"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_other_shapes_are_refused(name: str, chunks: int) -> None:
    with pytest.raises(ScheduleError, match=f"{name} goes down the workers and back up once"):
        SCHEDULES[name](ScheduleShape(4, 8, chunks))
