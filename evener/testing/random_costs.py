"""Random costs, to see that two ways to compute the same times agree whatever things cost."""

from random import Random

import numpy as np
from numpy.typing import NDArray

from evener.cost.table import KIND_INDEX, CostTable
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule


def random_costs(random: Random, schedule: Schedule) -> CostTable:
    """Times from 0 to 30 ns and sizes from 0 to 20 bytes.

    Every worker, stage, kind and direction of a link has its own.  In half of the tables there is
    no latency (else up to 15 ns), in half no limit of bandwidth (else up to 3 bytes/ns or none).
    In half of the tables a third of every action is all-reducing.
    The side work "p" and "q" has times, and so has the reduction of the first and last stage.
    """
    num_workers, num_stages = schedule.num_workers, schedule.num_stages

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
        ),
        side_ns={"p": random.randint(0, 30), "q": random.randint(0, 30)},
        tied_ns={(0, num_stages - 1): random.randint(0, 30)},
        all_reduce_ns=time_ns // 3 if random.random() < 1 / 2 else None,
    )
