"""Memory and time."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.memory import peak_bytes
from evener.planner.bound import lower_bound
from evener.planner.bounds.held_memory import held_memory_ns
from evener.planner.bounds.instance import Memory
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate


def test_what_a_microbatch_holds_goes_through_the_room_one_by_one(make_instance):
    # Layers hold 2 bytes from F to I: layer 0 for 1 + 1 + 2 + 2 = 6, layer 1 for 1 + 2 = 3.
    # 5 microbatches: 5 x (2 x 6 + 2 x 3) = 90 byte-ns.  Room for one: 4 bytes: 22.5.
    memory = Memory(np.array([2, 2]), 4)
    times = [1, 1], [2, 2], [3, 3]
    instance = make_instance(*times, 2, 5, memory=memory)
    assert held_memory_ns(instance) == 23
    assert held_memory_ns(replace(instance, memory=None)) == 0
    assert held_memory_ns(replace(instance, first_part=Fraction(1, 2))) == 0


@pytest.mark.parametrize("name", ["one_f_one_b", "zb_v", "v_min", "v_half", "gpipe"])
def test_no_schedule_is_faster_in_the_memory_that_it_takes(make_instance, name):
    # 4 workers, 12 microbatches, F 2, I 3, W 1; each stage holds 5 bytes
    shape = ScheduleShape(4, 12, 2 if name.startswith(("zb", "v")) else 1)
    schedule = SCHEDULES[name](shape)
    n = shape.num_stages
    times = {Kind.F: [2] * n, Kind.I: [3] * n, Kind.W: [1] * n, Kind.B: [4] * n}
    costs = CostTable.of_stages(4, times, activation_bytes=[5] * n)
    memory = Memory(np.array([5] * n), sum(peak_bytes(schedule, costs.memory)))
    instance = make_instance([2] * n, [3] * n, [1] * n, 4, 12, memory=memory)
    assert 0 < held_memory_ns(instance) <= simulate(schedule, costs).step_ns
    assert lower_bound(instance).step_ns <= simulate(schedule, costs).step_ns
