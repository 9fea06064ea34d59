"""Annealing in rounds: many short coolings, of which the better half goes on, colder and longer.

Every cooling has its own random numbers, made of the seed, its round and its place in it.  So the
answer depends on seed and effort alone, not on how many threads share the work.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TypeAlias, TypeVar

from evener.planner.joint.bench import new_bench
from evener.planner.joint.cooling import Cooling, Judged, cool_orders, cool_state
from evener.planner.joint.judge import judge
from evener.planner.joint.orders import Orders, orders_of
from evener.planner.joint.starts import leveled, most_stages, period_ns
from evener.planner.joint.state import State
from evener.planner.joint.world import NEVER, World

_NUM_COOLINGS = (32, 16, 8, 4, 4, 4)
"""Of states, per round."""

_NUM_ORDER_COOLINGS = 4
"""Of orders, in one round more; each round schedules as many actions as any other."""

_HOTTEST, _COLDEST, _ORDERS_HOTTEST, _ORDERS_COLDEST = 0.01, 0.0002, 0.001, 0.00003

_Point = TypeVar("_Point")

States: TypeAlias = list[tuple[State, int]]
"""States with their times."""


@dataclass
class Search:
    """One search.

    num_actions: how many actions it may schedule, in all plans that it judges.
    told: called now and then with the share of that that is spent and the best time; True ends it.
    """

    world: World
    num_actions: int
    seed: int
    told: Callable[[float, int], bool]
    num_judged: int = 0
    stopped: bool = False
    _best_ns: int = NEVER
    _stop: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def run(self, begins: Sequence[State]) -> tuple[Orders, int] | None:
        """The best lists and their time, also when stopped; None if no start fits into memory."""
        bench = new_bench(self.world, most_stages(self.world))
        level_ns = period_ns(self.world) * int(self.world.sizes[1])
        begins = [*begins, *(leveled(self.world, state, level_ns) for state in begins)]
        judged = [(state, int(judge(self.world, state, bench, NEVER))) for state in begins]
        found = [(state, step_ns) for state, step_ns in judged if step_ns < NEVER]
        self.num_judged += len(judged)
        if not found:
            return None
        self._best_ns = min(step_ns for _, step_ns in found)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            try:
                lists = self._lists(self._best_states(found, pool))
                cooled = self._round(pool, cool_orders, lists, len(_NUM_COOLINGS))
            finally:  # an interrupt must not wait for the threads' work
                self._stop.set()
        return _ranked([*lists, *cooled])[0]

    def _best_states(self, found: States, pool: ThreadPoolExecutor) -> States:
        for number, count in enumerate(_NUM_COOLINGS):
            if not self.stopped:
                found = _ranked(self._round(pool, cool_state, _chosen(found, count), number))
        return found

    def _lists(self, found: States) -> list[tuple[Orders, int]]:
        """The orders of the best states."""
        bench = new_bench(self.world, most_stages(self.world))
        lists = []
        for state, step_ns in _ranked(found)[:_NUM_ORDER_COOLINGS]:
            judge(self.world, state, bench, NEVER)
            lists.append((orders_of(self.world, state, bench), step_ns))
        return _chosen(lists, _NUM_ORDER_COOLINGS)

    def _round(
        self,
        pool: ThreadPoolExecutor,
        cool: Callable[[World, _Point, int, Cooling, Judged], tuple[_Point, int]],
        begins: list[tuple[_Point, int]],
        number: int,
    ) -> list[tuple[_Point, int]]:
        """Cool each of them; none gets worse."""
        coolings = self._coolings(number, len(begins))
        futures = [
            pool.submit(cool, self.world, point, step_ns, cooling, self._count)
            for (point, step_ns), cooling in zip(begins, coolings, strict=True)
        ]
        return self._watch(futures, number / (len(_NUM_COOLINGS) + 1))

    def _coolings(self, number: int, count: int) -> list[Cooling]:
        """Those of one round."""
        of_states = number < len(_NUM_COOLINGS)
        hot = _HOTTEST * 0.5**number if of_states else _ORDERS_HOTTEST
        cold = _COLDEST if of_states else _ORDERS_COLDEST
        num_actions = self.num_actions // (len(_NUM_COOLINGS) + 1) // count
        return [
            Cooling(hot, cold, num_actions, (self.seed, number, place)) for place in range(count)
        ]

    def _count(self, num_judged: int) -> bool:
        with self._lock:
            self.num_judged += num_judged
        return self._stop.is_set()

    def _watch(
        self, futures: "Sequence[Future[tuple[_Point, int]]]", done: float
    ) -> list[tuple[_Point, int]]:
        """Wait for a round, or less long if told to stop; what it found, in a fixed order."""
        pending = set(futures)
        share = 1 / (len(_NUM_COOLINGS) + 1) / len(futures)
        while pending:
            finished, pending = wait(pending, timeout=0.2)
            self._best_ns = min([self._best_ns, *(future.result()[1] for future in finished)])
            done += share * len(finished)
            if not self.stopped and self.told(done, self._best_ns):
                self.stopped = True
                self._stop.set()
        return [future.result() for future in futures]


def _ranked(found: list[tuple[_Point, int]]) -> list[tuple[_Point, int]]:
    """Fastest first; of equally fast ones the one that was there first."""
    return sorted(found, key=lambda pair: pair[1])


def _chosen(found: list[tuple[_Point, int]], count: int) -> list[tuple[_Point, int]]:
    """The best ones; where there are fewer, some of them twice or more often."""
    ranked = _ranked(found)[:count]
    return [ranked[number % len(ranked)] for number in range(count)]
