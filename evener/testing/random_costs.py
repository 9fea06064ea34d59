"""Random costs, to see that two ways to compute the same times agree whatever things cost."""

from random import Random

import numpy as np
from numpy.typing import NDArray

from evener.cost.table import KIND_INDEX, CostTable, SliceCosts
from evener.ir.action import Action
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource
from evener.ir.schedule import COMPUTE_KINDS, Schedule


def random_costs(random: Random, schedule: Schedule) -> CostTable:
    """Times from 0 to 30 ns and sizes from 0 to 20 bytes.

    Every worker, stage, kind and direction of a link has its own.  In half of the tables there is
    no latency (else up to 15 ns), in half no limit of bandwidth (else up to 3 bytes/ns or none).
    In half of the tables a third of every action is all-reducing.
    The side work "p" and "q" has times, and so has the reduction of the first and last stage.
    In half of the tables every third compute action has a time of its own, of up to 50 ns.
    Where there are slices, half of the tables give each its own times and sizes.
    """
    num_workers, num_stages, k = schedule.num_workers, schedule.num_stages, schedule.num_slices
    slices_differ = k > 1 and random.random() < 1 / 2

    def integers(most: int, *shape: int) -> NDArray[np.int64]:
        drawn = [random.randint(0, most) for _ in range(int(np.prod(shape)))]
        return np.array(drawn, dtype=np.int64).reshape(shape)

    time_ns = integers(30, num_workers, num_stages, len(KIND_INDEX))
    return CostTable(
        time_ns=time_ns,
        forward_bytes=integers(20, num_stages),
        backward_bytes=integers(20, num_stages),
        latency_ns=integers(random.choice((0, 15)), num_workers, num_workers),
        bytes_per_s=integers(random.choice((0, 3)), num_workers, num_workers) * 1_000_000_000,
        memory=MemoryTable(
            per_stage={each: tuple(integers(20, num_stages).tolist()) for each in Resource},
            static_bytes=tuple(integers(99, num_workers).tolist()),
            per_slice={
                each: tuple(map(tuple, integers(20, num_stages, k).tolist()))
                for each in (Resource.ACTIVATION, Resource.WEIGHT_GRADIENT, Resource.INPUT)
            }
            if slices_differ
            else {},
        ),
        side_ns={"p": random.randint(0, 30), "q": random.randint(0, 30)},
        tied_ns={(0, num_stages - 1): random.randint(0, 30)},
        single_ns=_single_times(random, schedule),
        slices=SliceCosts(
            time_ns=integers(30, num_workers, num_stages, len(KIND_INDEX), k),
            forward_bytes=integers(20, num_stages, k),
            backward_bytes=integers(20, num_stages, k),
        )
        if slices_differ
        else None,
        all_reduce_ns=time_ns // 3 if random.random() < 1 / 2 else None,
    )


def _single_times(random: Random, schedule: Schedule) -> dict[Action, int]:
    if random.random() < 0.5:
        return {}
    chosen = {
        action: random.randint(0, 50)
        for _, action in schedule.actions()
        if action.kind in COMPUTE_KINDS
    }
    return {action: time_ns for action, time_ns in chosen.items() if random.random() < 1 / 3}
