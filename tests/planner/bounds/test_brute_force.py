"""No bound is above the best of all plans: every placement and every order, on tiny worlds.

Without time per action or stage, a stage of several layers is worth no more than its layers as
stages of their own on the same worker, run one right after the other.  So one layer per stage on
any worker covers all partitions.
"""

import random
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest

from evener.planner.bound import BOUNDS, lower_bound
from evener.planner.bounds.instance import ChainTimes, Instance


@dataclass
class Best:
    """The shortest step over all orders, by branch and bound over active schedules.

    Giffler and Thompson, 1960: of all actions that can come next take the one that could end
    first; some action on its worker that can start before that end comes next on this worker.

    worker: [microbatch][layer]. times: [worker][forward, input, weight][layer].
    """

    worker: list[tuple[int, ...]]
    times: list[tuple[list[int], list[int], list[int]]]
    message: int
    best: int
    seen: set = field(default_factory=set)

    def __post_init__(self):
        self.n, self.m = len(self.times[0][0]), len(self.worker)
        # Position of a microbatch on its way: F of layer 0..n-1, then I of layer n-1..0.
        self.way = [(0, layer) for layer in range(self.n)]
        self.way += [(1, layer) for layer in reversed(range(self.n))]
        lengths = [min(own[kind][layer] for own in self.times) for kind, layer in self.way]
        self.tail = [sum(lengths[at:]) for at in range(2 * self.n + 1)]

    def solve(self):
        num_workers = len(self.times)
        load = [0] * num_workers
        for row in self.worker:
            for layer, worker in enumerate(row):
                load[worker] += sum(kind[layer] for kind in self.times[worker])
        self._search((0,) * self.m, (0,) * self.m, (0,) * num_workers, (), tuple(load))
        return self.best

    def _ready(self, at, arrived, waiting):
        """(worker, ready, length, microbatch or None, index into waiting)."""
        for k in range(self.m):
            twin = k > 0 and self.worker[k] == self.worker[k - 1] and at[k] == at[k - 1] == 0
            if at[k] < 2 * self.n and not twin:  # equal microbatches start in their order
                kind, layer = self.way[at[k]]
                worker = self.worker[k][layer]
                yield worker, arrived[k], self.times[worker][kind][layer], k, None
        for index, (ready, worker, length) in enumerate(waiting):
            yield worker, ready, length, None, index

    def _search(self, at, arrived, free, waiting, load):
        bound = max([f + rest for f, rest in zip(free, load, strict=True)])
        bound = max(bound, *(t + self.tail[a] for t, a in zip(arrived, at, strict=True)))
        if bound >= self.best:
            return
        if not any(load):
            self.best = max(free)
            return
        state = (at, arrived, free, waiting)
        if state in self.seen:
            return
        self.seen.add(state)
        ready = [
            (max(free[w], t), t, w, *rest) for w, t, *rest in self._ready(at, arrived, waiting)
        ]
        first_end, chosen = min((start + length, w) for start, _, w, length, *_ in ready)
        for start, _, worker, length, k, index in sorted(ready, key=lambda each: each[0]):
            if worker == chosen and (start < first_end or length == 0):
                self._take((at, arrived, free, waiting, load), worker, start, length, k, index)

    def _take(self, state, worker, start, length, k, index):
        at, arrived, free, waiting, load = map(list, state)
        free[worker], load[worker] = start + length, load[worker] - length
        if k is None:
            del waiting[index]
        else:
            kind, layer = self.way[at[k]]
            at[k], arrived[k] = at[k] + 1, start + length
            if at[k] < 2 * self.n and self.worker[k][self.way[at[k]][1]] != worker:
                arrived[k] += self.message
            if kind == 1 and self.times[worker][2][layer]:
                waiting.append((start + length, worker, self.times[worker][2][layer]))
        self._search(tuple(at), tuple(arrived), tuple(free), tuple(sorted(waiting)), tuple(load))


def _placements(num_layers, num_workers):
    """Up to the names of equal workers: a new worker is the next one."""
    for row in product(range(num_workers), repeat=num_layers):
        if all(worker <= max(row[:layer], default=-1) + 1 for layer, worker in enumerate(row)):
            yield row


def _fastest(times, num_workers, num_microbatches, *, message=0, copies=1):
    n = len(times[0])
    best = sum(map(sum, times)) * num_microbatches + 1  # all on one worker
    placements = list(_placements(n, num_workers))
    if copies == 1:
        worlds = [[row] * num_microbatches for row in placements]
    else:
        others = list(product(range(num_workers), repeat=n))
        worlds = [
            [row] * (num_microbatches - count) + [other] * count
            for row in placements
            for other in others
            for count in range(num_microbatches // 2 + 1)
            if count or other == others[0]
        ]
    for world in worlds:
        best = Best(world, [times] * num_workers, message, best).solve()
    return best


def _random_times(rng, num_layers, most):
    forward, input_, weight = ([rng.randint(1, most) for _ in range(num_layers)] for _ in range(3))
    shape = rng.randrange(4)
    if shape == 0:
        forward[-1], input_[-1] = 4 * most, 4 * most  # a head
    if shape == 1:
        forward[0] = input_[0] = 1  # an embedding
    if shape == 2:
        forward[1:], input_[1:], weight[1:] = (  # equal layers
            [row[1]] * (num_layers - 1) for row in (forward, input_, weight)
        )
    return forward, input_, weight


@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_above_the_best_plan(seed):
    rng = random.Random(seed)
    for layers, workers, microbatches in [(2, 2, 3), (3, 2, 2), (2, 3, 3), (4, 3, 1), (2, 2, 2)]:
        times = _random_times(rng, layers, 6)
        if rng.randrange(3) == 0:
            times = (times[0], times[1], [0] * layers)  # a backward that is never split
        message = rng.choice([0, 0, 1, 3])
        fastest = _fastest(times, workers, microbatches, message=message)
        instance = Instance(ChainTimes.of_parts(*times), workers, microbatches, message_ns=message)
        assert lower_bound(instance).step_ns <= fastest, (times, instance)
        assert message or not any(
            bound(instance) > fastest for bound in BOUNDS.values() if workers == 1
        )


@pytest.mark.parametrize("seed", range(8))
def test_no_bound_is_above_the_best_plan_in_both_directions(seed):
    rng = random.Random(100 + seed)
    for layers, microbatches in [(2, 2), (2, 3)]:
        times = _random_times(rng, layers, 6)
        message = rng.choice([0, 2])
        fastest = _fastest(times, 2, microbatches, message=message, copies=2)
        instance = Instance(
            ChainTimes.of_parts(*times), 2, microbatches, stage_copies=2, message_ns=message
        )
        assert lower_bound(instance).step_ns <= fastest, (times, instance)


@pytest.mark.parametrize("seed", range(20))
def test_no_bound_is_above_the_best_plan_on_unequal_workers(seed):
    rng = random.Random(200 + seed)
    for layers, microbatches in [(2, 3), (3, 2)]:
        times = [_random_times(rng, layers, 6) for _ in range(2)]
        fastest = sum(map(sum, times[0])) * microbatches + 1  # all on the first worker
        for row in product(range(2), repeat=layers):
            fastest = Best([row] * microbatches, times, 0, fastest).solve()
        parts = np.array(times)  # [worker][kind][layer]
        forward, input_, weight = parts.min(axis=0)
        work = parts.sum(axis=1)
        chain = ChainTimes(forward, input_, work.min(axis=0), weight)
        instance = Instance(chain, 2, microbatches, worker_work_ns=work)
        assert lower_bound(instance).step_ns <= fastest, (times, instance)
