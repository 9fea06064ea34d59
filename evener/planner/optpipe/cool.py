"""One annealing from one start, in parts, so that a stop never waits long."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evener.planner.optpipe.anneal import anneal
from evener.planner.optpipe.bench import new_bench
from evener.planner.optpipe.orders import Orders, copied
from evener.planner.optpipe.world import Int, World

_HOT, _COLD = 0.004, 0.0002
"""How much longer a step may become by one move on average, relative to the first."""

_PER_PART = 1 << 20
"""Places in lists that are played between two looks at the clock: some tenths of a second."""

Judged = Callable[[int], bool]
"""Told how many orders were judged; True ends the cooling."""


@dataclass(frozen=True)
class Cooling:
    """num_orders: to be judged in all. seed: of the random numbers."""

    num_orders: int
    seed: tuple[int, ...]

    def run(self, world: World, begin: Orders, begin_ns: int, judged: Judged) -> tuple[Orders, int]:
        """The best orders on the way, and their time."""
        current, best = copied(begin), copied(begin)
        found_ns: Int = np.full(2, begin_ns, dtype=np.int64)
        bench = new_bench(world, begin)
        random = np.random.SeedSequence(self.seed).generate_state(1, np.uint64)
        num_places = int(begin.length.sum())
        left = total = self.num_orders
        while left > 0:
            now = min(left, max(1, _PER_PART // num_places))
            hot_ns, cold_ns = (
                begin_ns * _HOT * (_COLD / _HOT) ** (1 - rest / total)
                for rest in (left, left - now)
            )
            anneal(world, (current, best), bench, random, found_ns, (hot_ns, cold_ns, now))
            left -= now
            if judged(now):
                break
        return best, int(found_ns[1])
