"""No registered schedule is faster than the bound, whatever its stages cost."""

import random

import numpy as np
import pytest

from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.passes import lower
from evener.planner.bound import lower_bound
from evener.planner.bounds.instance import ChainTimes, Instance
from evener.planner.pipeline_times import pipeline_times
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate

WHOLE = [entry for entry in SCHEDULES.values() if entry.slicer is None]


@pytest.mark.parametrize("entry", WHOLE, ids=lambda entry: entry.name)
def test_no_schedule_is_faster(entry):
    rng = random.Random(entry.name)
    tried = 0
    for workers, microbatches, chunks in [(1, 2, 1), (2, 4, 1), (2, 4, 2), (4, 8, 1), (4, 8, 2)]:
        shape = ScheduleShape(workers, microbatches, chunks)
        if entry.unsupported(shape) is not None:
            continue
        tried += 1
        forward, input_, weight = (
            np.array([rng.randint(1, 40) for _ in range(shape.num_stages)]) for _ in range(3)
        )
        times = {Kind.F: forward, Kind.I: input_, Kind.W: weight, Kind.B: input_ + weight}
        message = rng.choice([0, 7])
        costs = CostTable.of_stages(workers, times, latency_ns=message)
        schedule = entry(shape)
        if entry.adapted is not None:
            schedule = entry(shape, pipeline_times(schedule, costs, None))
        step_ns = simulate(lower(schedule), costs).step_ns
        instance = Instance(
            ChainTimes.of_parts(forward, input_, weight),
            workers,
            microbatches,
            stage_copies=entry.stage_copies,
            message_ns=message,
        )
        assert lower_bound(instance).step_ns <= step_ns
    assert tried
