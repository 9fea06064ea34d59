"""One cooling of either half of the search, in parts, so that a stop never waits long."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from evener.planner.joint.anneal import anneal
from evener.planner.joint.anneal_orders import anneal_orders
from evener.planner.joint.bench import new_bench
from evener.planner.joint.orders import Orders, new_deck
from evener.planner.joint.starts import most_stages
from evener.planner.joint.state import State, copy_state, empty_state
from evener.planner.joint.world import Int, World

_PER_PART = 1 << 20
"""Actions to be scheduled between two looks at the clock: some tens of milliseconds."""


@dataclass(frozen=True)
class Cooling:
    """hot, cold: how much longer a step may become by one move, relative to the first, on average.

    effort: of the whole cooling, as the annealing counts it. seed: of the random numbers.
    """

    hot: float
    cold: float
    effort: int
    seed: tuple[int, ...]

    def parts(self, step_ns: int, per_part: int) -> Iterator[tuple[float, float, int]]:
        """For each part the heat (ns) at its begin and end, and its effort, up to ``per_part``."""
        left = total = max(1, self.effort)
        while left > 0:
            now = min(left, per_part)
            begin, end = (1 - rest / total for rest in (left, left - now))
            ratio = self.cold / self.hot
            yield step_ns * self.hot * ratio**begin, step_ns * self.hot * ratio**end, now
            left -= now

    def random(self) -> np.ndarray:
        """The state of a generator of ``random_numbers``."""
        return np.random.SeedSequence(self.seed).generate_state(1, np.uint64)


Judged = Callable[[int], bool]
"""Told how many plans were judged; True ends the cooling."""


def cool_state(
    world: World, begin: State, begin_ns: int, cooling: Cooling, judged: Judged
) -> tuple[State, int]:
    """The best state on the way, and its time."""
    room = most_stages(world)
    current, best, trial = (empty_state(world, room) for _ in range(3))
    copy_state(begin, current)
    copy_state(begin, best)
    found_ns: Int = np.full(2, begin_ns, dtype=np.int64)
    bench, random = new_bench(world, room), cooling.random()
    for part in cooling.parts(begin_ns, _PER_PART):
        if judged(anneal(world, (current, best, trial), bench, random, found_ns, part)):
            break
    return best, int(found_ns[1])


def cool_orders(
    world: World, begin: Orders, begin_ns: int, cooling: Cooling, judged: Judged
) -> tuple[Orders, int]:
    """The best lists on the way, and their time."""
    current, best = (Orders(*(array.copy() for array in begin)) for _ in range(2))
    found_ns: Int = np.full(2, begin_ns, dtype=np.int64)
    deck, random = new_deck(world, begin), cooling.random()
    for part in cooling.parts(begin_ns, _PER_PART):
        if judged(anneal_orders(world, (current, best), deck, random, found_ns, part)):
            break
    return best, int(found_ns[1])
