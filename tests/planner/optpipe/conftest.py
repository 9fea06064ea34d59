"""Pipelines on paper: stages of 10 + 10 + 10 ns that hold 100 bytes, 5 of them their input."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from evener.cost.table import CostTable
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.planner.optpipe.world import World, world_of
from evener.spec.cluster import Link


def _costs(num_workers: int, num_stages: int, weight_bytes: int) -> CostTable:
    table = CostTable.uniform(num_workers, num_stages, forward_ns=10, input_ns=10, weight_ns=10)
    sizes = {
        Resource.ACTIVATION: (100,) * num_stages,
        Resource.CHECKPOINT: (5,) * num_stages,
        Resource.WEIGHT_GRADIENT: (weight_bytes,) * num_stages,
        Resource.OFFLOADED: (0,) * num_stages,
    }
    return replace(table, memory=MemoryTable(sizes, static_bytes=(0,) * num_workers))


@pytest.fixture
def make_world():
    """make_world(schedule, cap_bytes=..., copy_ns=..., groups=..., may=...) -> (costs, world)."""

    def make(
        schedule: Schedule,
        *,
        cap_bytes: int,
        copy_ns: int = 10,
        groups: Sequence[int] | None = None,
        may: tuple[int, int, int] = (1, 1, 1),
        weight_bytes: int = 30,
    ) -> tuple[CostTable, World]:
        num_workers = schedule.num_workers
        costs = _costs(num_workers, schedule.num_stages, weight_bytes)
        world = world_of(
            schedule,
            costs,
            links=[Link(copy_ns, 0)] * num_workers,
            groups=range(num_workers) if groups is None else groups,
            cap_bytes=[cap_bytes] * num_workers,
            may=may,
        )
        return costs, world

    return make
