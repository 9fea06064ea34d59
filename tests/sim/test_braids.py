"""Braids whose actions have times of their own."""

from dataclasses import replace

import numpy as np

from evener.cost.table import KIND_INDEX, CostTable
from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.sim.engine import makespans, simulate
from evener.sim.reference import simulate_by_events


def test_a_single_time_counts_in_a_braid() -> None:
    """F takes 10, 4 of it all-reducing; B takes 20, of which 8; but 0B0 takes 5 and only waits.

    (0F1 0B0): computing 10 - 4 = 6, all-reducing 4 + 5 = 9, the longer action 10: 10 in all.
    The step: 0F0 10, the braid 10, 0B1 20.
    """
    row = tuple(map(parse_action, ("0F0", "0F1", "0B0", "0B1")))
    schedule = Schedule("x", 1, 2, (row,), braids=frozenset({row[1]}))
    costs = CostTable.uniform(1, 1)
    time_ns, all_reduce_ns = costs.time_ns.copy(), np.zeros_like(costs.time_ns)
    for kind, all_ns, wait_ns in ((Kind.F, 10, 4), (Kind.B, 20, 8)):
        time_ns[:, :, KIND_INDEX[kind]] = all_ns
        all_reduce_ns[:, :, KIND_INDEX[kind]] = wait_ns
    costs = replace(
        costs, time_ns=time_ns, all_reduce_ns=all_reduce_ns, single_ns={parse_action("0B0"): 5}
    )
    assert simulate(schedule, costs).step_ns == simulate_by_events(schedule, costs).step_ns == 40
    assert makespans(schedule, costs, time_ns[None]).tolist() == [40]
