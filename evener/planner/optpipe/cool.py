"""One annealing from one start, in parts, so that a stop never waits long."""

import numpy as np

from evener.planner.joint.cooling import Cooling, Judged
from evener.planner.optpipe.anneal import anneal
from evener.planner.optpipe.bench import new_bench
from evener.planner.optpipe.orders import Orders, copied
from evener.planner.optpipe.world import Int, World

_HOT, _COLD = 0.004, 0.0002

_PER_PART = 1 << 20
"""Places in lists that are played between two looks at the clock: some tenths of a second."""


def cooling_of(num_orders: int, seed: tuple[int, ...]) -> Cooling:
    """One in which so many orders are judged."""
    return Cooling(_HOT, _COLD, num_orders, seed)


def cool(
    world: World, begin: Orders, begin_ns: int, cooling: Cooling, judged: Judged
) -> tuple[Orders, int]:
    """The best orders on the way, and their time."""
    current, best = copied(begin), copied(begin)
    found_ns: Int = np.full(2, begin_ns, dtype=np.int64)
    bench, random = new_bench(world, begin), cooling.random()
    per_part = max(1, _PER_PART // int(begin.length.sum()))
    for part in cooling.parts(begin_ns, per_part):
        anneal(world, (current, best), bench, random, found_ns, part)
        if judged(part[-1]):
            break
    return best, int(found_ns[1])
