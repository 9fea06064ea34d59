"""Moves of boundaries alone: layers go to neighbours until no worker has more than it has time for.

A stage that changes its worker nearly always leaves one worker with too much, and an annealing
hardly ever finds the boundaries that fit to it by chance.  What workers have to do is known without
scheduling anything, so here many boundaries are tried for the price of one judgement.
"""

import numpy as np

from evener.compiled import uncounted
from evener.planner.joint.random_numbers import below
from evener.planner.joint.state import State
from evener.planner.joint.world import BACKWARD, FORWARD, WEIGHT, Int, World

# Rows of rooms: work per microbatch, what there is time for, and both without W, as these can wait
# for the end, when the last microbatch is on its way back.
LOAD_NS, ROOM_NS, CHAIN_NS, CHAIN_ROOM_NS = range(4)


@uncounted
def balance(
    world: World, state: State, rooms: Int, seed: np.ndarray, limit_ns: int, num_tries: int
) -> None:
    """Shift boundaries at random where that leaves less work over than before.

    rooms: [4, worker], to work in. limit_ns: when all should have ended.
    """
    count, num_microbatches = state.num_stages[0], world.sizes[1]
    rooms[:] = 0
    for stage in range(count - 1, -1, -1):
        worker, begin = state.worker[stage], state.cut[stage]
        _add(world, state, rooms, stage, 1)
        room_ns = limit_ns - world.until_ns[FORWARD, worker, begin]
        rooms[ROOM_NS, worker] = room_ns // num_microbatches
        room_ns -= world.until_ns[BACKWARD, worker, begin]
        rooms[CHAIN_ROOM_NS, worker] = room_ns // num_microbatches
    over_ns = _over_ns(rooms)
    for _ in range(num_tries):
        if over_ns == 0:
            return
        stage = below(seed, count)
        while _is_fine(rooms, state.worker[stage]):
            stage = (stage + 1) % count
        step = 2 * below(seed, 2) - 1
        first = last = stage if step > 0 else stage + 1
        while below(seed, 2) == 0:
            first, last = (first - 1, last) if step > 0 else (first, last + 1)
        if not can_shift(state, first, last, step):
            continue
        _shift(world, state, rooms, first, last, step)
        now_ns = _over_ns(rooms)
        if now_ns > over_ns:
            _shift(world, state, rooms, first, last, -step)
        else:
            over_ns = now_ns


@uncounted
def can_shift(state: State, first: int, last: int, step: int) -> bool:
    """Whether boundaries that stand side by side can move by so many layers."""
    if first < 1 or last >= state.num_stages[0]:
        return False
    if step > 0:
        return bool(state.cut[last] + step < state.cut[last + 1])
    return bool(state.cut[first] + step > state.cut[first - 1])


@uncounted
def _is_fine(rooms: Int, worker: int) -> bool:
    return _worker_over_ns(rooms, worker) <= 0


@uncounted
def _over_ns(rooms: Int) -> int:
    """Work per microbatch that workers have more than they have time for."""
    over_ns = 0
    for worker in range(rooms.shape[1]):
        over_ns += max(0, _worker_over_ns(rooms, worker))
    return over_ns


@uncounted
def _worker_over_ns(rooms: Int, worker: int) -> int:
    return int(
        max(
            rooms[LOAD_NS, worker] - rooms[ROOM_NS, worker],
            rooms[CHAIN_NS, worker] - rooms[CHAIN_ROOM_NS, worker],
        )
    )


@uncounted
def _shift(world: World, state: State, rooms: Int, first: int, last: int, step: int) -> None:
    for stage in range(first - 1, last + 1):
        _add(world, state, rooms, stage, -1)
    for boundary in range(first, last + 1):
        state.cut[boundary] += step
    for stage in range(first - 1, last + 1):
        _add(world, state, rooms, stage, 1)


@uncounted
def _add(world: World, state: State, rooms: Int, stage: int, sign: int) -> None:
    """Its work to that of its worker, or less."""
    begin, end, worker = state.cut[stage], state.cut[stage + 1], state.worker[stage]
    for kind in (FORWARD, BACKWARD, WEIGHT):
        own_ns = sign * (world.until_ns[kind, worker, end] - world.until_ns[kind, worker, begin])
        rooms[LOAD_NS, worker] += own_ns
        if kind != WEIGHT:
            rooms[CHAIN_NS, worker] += own_ns
