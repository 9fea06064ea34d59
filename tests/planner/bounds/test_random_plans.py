"""No plan of a local search is faster than any bound: heavy layers, unequal workers, memory.

The worlds are larger than those of ``test_brute_force``.  Plans of one layer per stage, which
covers all partitions, are improved by random changes of placement and priorities, since only good
plans come near the bounds.
"""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from evener.planner.bound import BOUNDS
from evener.planner.bounds.instance import ChainTimes, Instance, Memory

FORWARD, INPUT, WEIGHT = range(3)


@dataclass
class World:
    """times: [worker][layer][kind]. held: [layer], from the start of F to the end of I."""

    times: list[list[list[int]]]
    held: list[int]
    num_microbatches: int
    message: int

    @property
    def num_layers(self):
        return len(self.held)

    def instance(self):
        times = np.array(self.times)
        work = times.sum(axis=2)
        forward, input_ = times[:, :, FORWARD].min(axis=0), times[:, :, INPUT].min(axis=0)
        rest = (work - times[:, :, FORWARD] - times[:, :, INPUT]).min(axis=0)
        return Instance(
            ChainTimes(forward, input_, work.min(axis=0), rest),
            len(self.times),
            self.num_microbatches,
            message_ns=self.message,
            worker_work_ns=None if (work == work[0]).all() else work,
        )

    def run(self, place, priority):
        """Step and peak of a list schedule: of what can start first, the smallest priority."""
        free, taken, step = [0] * len(self.times), [[] for _ in self.times], 0
        ready = {(FORWARD, 0, k): 0 for k in range(self.num_microbatches)}
        while ready:
            start, _, action = min(
                (max(free[place[layer]], since), priority[kind, layer, k], (kind, layer, k))
                for (kind, layer, k), since in ready.items()
            )
            del ready[action]
            kind, layer, k = action
            worker = place[layer]
            free[worker] = end = start + self.times[worker][layer][kind]
            step = max(step, end)
            if kind == FORWARD:
                taken[worker].append((start, 1, self.held[layer]))
            if kind == INPUT:
                taken[worker].append((end, 0, -self.held[layer]))
                ready[WEIGHT, layer, k] = end
            follower = layer + 1 if kind == FORWARD else layer - 1
            if kind == FORWARD and follower == self.num_layers:
                ready[INPUT, layer, k] = end
            elif kind != WEIGHT and follower >= 0:
                ready[kind, follower, k] = end + self.message * (place[follower] != worker)
        return step, sum(_peak(events) for events in taken)


def _peak(events):
    held = peak = 0
    for _, _, change in sorted(events):
        held += change
        peak = max(peak, held)
    return peak


def _world(rng):
    num_layers, most = rng.randint(2, 6), rng.choice([3, 9])
    num_workers = rng.randint(2, min(num_layers, 3))
    kinds = [
        [rng.randint(1, most), rng.randint(1, most), rng.randint(0, most)]
        for _ in range(rng.randint(1, 3))
    ]
    layers = [list(rng.choice(kinds)) for _ in range(num_layers)]
    heavy = layers[rng.choice([-1, -1, rng.randrange(num_layers)])]
    heavy[:] = [rng.randint(2, 6) * own for own in heavy]
    heavy[WEIGHT] *= rng.choice([0, 1])
    slower = [[own * rng.choice([1, 1, 2]) for own in layer] for layer in layers]
    return World(
        [rng.choice([layers, slower]) for _ in range(num_workers)],
        [rng.randint(0, 4) for _ in layers],
        rng.randint(1, 5),
        rng.choice([0, 0, 1, 4]),
    )


def _plans(world, rng, count):
    """(step, peak) of plans that use all workers, each one change away from the best before."""
    actions = [
        (kind, layer, k)
        for kind in range(3)
        for layer in range(world.num_layers)
        for k in range(world.num_microbatches)
    ]
    workers = range(len(world.times))
    place = [layer % len(workers) for layer in range(world.num_layers)]
    priority = {(kind, layer, k): k + 9 * (kind == WEIGHT) for kind, layer, k in actions}
    best, peak = world.run(place, priority)
    yield best, peak
    for _ in range(count):
        trial, wishes = list(place), dict(priority)
        if rng.random() < 0.4:
            trial[rng.randrange(world.num_layers)] = rng.choice(workers)
        else:
            wishes[rng.choice(actions)] = 10 * rng.random()
        if len(set(trial)) == len(workers):
            step, peak = world.run(trial, wishes)
            yield step, peak
            if step <= best:
                best, place, priority = step, trial, wishes


@pytest.mark.parametrize("seed", range(60))
def test_no_plan_is_faster(seed):
    _try(random.Random(seed), 30)


@pytest.mark.slow
def test_no_plan_of_many_is_faster():
    rng = random.Random(2026)
    for _ in range(500):
        _try(rng, 150)


def _try(rng, count):
    world = _world(rng)
    instance = world.instance()
    bounds_ns = {name: bound(instance) for name, bound in BOUNDS.items()}
    fastest = {}  # per peak
    for step, peak in _plans(world, rng, count):
        fastest[peak] = min(step, fastest.get(peak, step))
    assert max(bounds_ns.values()) <= min(fastest.values()), (world, bounds_ns)
    for peak, step in fastest.items():
        limited = replace(instance, memory=Memory(np.array(world.held), peak))
        assert max(bound(limited) for bound in BOUNDS.values()) <= step, (world, peak)
