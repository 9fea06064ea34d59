"""A plan that offloads, recomputes and splits some cells of a stage, and not others, for real."""

from collections import Counter

import numpy as np
import pytest

from evener.cost.host_copies import with_host_copies
from evener.cost.table import CostTable
from evener.executor.emulate import emulate
from evener.executor.verify import verify
from evener.ir.action import Kind
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.planner.optpipe.ada_offload import AS_FITS, fill_memory
from evener.planner.optpipe.bench import new_bench
from evener.planner.optpipe.orders import orders_of, schedule_of
from evener.planner.optpipe.play import play
from evener.planner.optpipe.world import NEVER, OFFLOAD, RECOMPUTE, world_of
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.spec.cluster import Link

pytestmark = pytest.mark.dist

MS = 1_000_000


def costs_of(num_workers: int, num_stages: int) -> CostTable:
    return CostTable.uniform(
        num_workers,
        num_stages,
        forward_ns=10 * MS,
        input_ns=10 * MS,
        weight_ns=10 * MS,
        latency_ns=MS,
        activation_bytes=100,
    )


def mixed(num_workers: int) -> tuple[Schedule, CostTable]:
    """ZB-H1 in little memory; every third cell is recomputed, every fifth has a whole backward."""
    schedule = SCHEDULES["zb_h1"](ScheduleShape(num_workers, 8))
    costs = costs_of(num_workers, schedule.num_stages)
    links = [Link(5 * MS, 0)] * num_workers
    world = world_of(
        schedule,
        costs,
        links=links,
        groups=range(num_workers),
        cap_bytes=[130] * num_workers,
        may=(1, 1, 1),
    )
    orders = orders_of(schedule)
    bench = new_bench(world, orders)
    assert fill_memory(world, orders, bench, AS_FITS)
    cells = np.arange(len(orders.mode))
    orders.mode[(cells % 3 == 0) & (orders.mode != OFFLOAD)] = RECOMPUTE
    orders.whole[::5] = 1
    assert play(world, orders, bench, NEVER) < NEVER
    played = schedule_of(world, orders, bench.played, bench.played_lengths)
    return played, with_host_copies(costs, played, links=links)


@pytest.mark.timeout(90)
def test_parity() -> None:
    schedule, _ = mixed(2)
    kinds = Counter(action.kind for _, action in schedule.actions())
    assert all(kinds[kind] for kind in (Kind.OFFLOAD, Kind.R, Kind.B, Kind.I))
    assert verify(schedule).holds


@pytest.mark.timeout(90)
def test_virtual_times_are_those_of_the_simulation() -> None:
    schedule, costs = mixed(2)
    lowered = lower(schedule)
    (played,) = emulate(lowered, costs)
    predicted = simulate(lowered, costs)
    assert played.start_ns == predicted.start_ns
    assert played.end_ns == predicted.end_ns
