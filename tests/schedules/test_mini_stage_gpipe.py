"""Mini-stage GPipe: each stage is worked on once forward and once backward."""

from itertools import groupby

import pytest

from evener.ir.memory import peak_in_flight
from evener.schedules import ScheduleShape, gpipe
from evener.schedules.mini_stage_gpipe import mini_stage_gpipe
from evener.sim import simulate
from evener.testing.worlds import unit_costs


@pytest.mark.parametrize("num_microbatches", [1, 3, 8])
def test_a_worker_turns_to_each_stage_twice_per_step(num_microbatches: int) -> None:
    # Worker 1 of 2 holds 1, 3, 5; with the last one it goes on backward.  So parameters are
    # gathered once per pass, whatever the number of microbatches.
    schedule = mini_stage_gpipe(ScheduleShape(2, num_microbatches, 3))
    visits = [stage for stage, _ in groupby(action.stage for action in schedule.workers[1])]
    assert visits == [1, 3, 5, 3, 1]


def test_one_chunk_is_gpipe() -> None:
    shape = ScheduleShape(3, 5)
    assert mini_stage_gpipe(shape).workers == gpipe(shape).workers


def test_step_and_memory() -> None:
    # 3 workers, 2 rounds, 4 microbatches, F = 1, B = 2: (2 x 4 + 3 - 1) slots of 3.
    schedule = mini_stage_gpipe(ScheduleShape(3, 4, 2))
    assert simulate(schedule, unit_costs(3, 6)).step_ns == 10 * 3
    assert peak_in_flight(schedule) == (8, 8, 8)
