"""The moves of the joint search: each changes a state a little, at random, in place."""

import numpy as np

from evener.compiled import uncounted
from evener.planner.joint.balance import balance, can_shift
from evener.planner.joint.random_numbers import below, unit
from evener.planner.joint.state import State
from evener.planner.joint.world import Int, World

_NUM_LEVEL = 5


@uncounted
def move(
    world: World, state: State, rooms: Int, seed: np.ndarray, period_ns: int, limit_ns: int
) -> bool:
    """One random move; False if there was none of the drawn kind.

    rooms: see ``balance``. period_ns: the mean work of a worker for one microbatch, the scale of
    times. limit_ns: how long a step may take.
    """
    draw = below(seed, 100)
    if draw < _NUM_LEVEL:
        balance(world, state, rooms, seed, int(limit_ns * (1 - 0.05 * unit(seed))), 40)
        return True
    if draw < 30:
        return _shift_boundaries(state, seed)
    if draw < 56:
        if not _change_stages(world, state, seed, draw):
            return False
        balance(world, state, rooms, seed, limit_ns, 20)
        return True
    return _change_rules(world, state, seed, period_ns, draw)


@uncounted
def _change_stages(world: World, state: State, seed: np.ndarray, draw: int) -> bool:
    """Who runs what."""
    if draw < 40:
        return _give_away(world, state, seed)
    if draw < 50:
        return _swap_workers(state, seed)
    if draw < 53:
        return _split(world, state, seed)
    return _merge(state, seed)


@uncounted
def _change_rules(world: World, state: State, seed: np.ndarray, period_ns: int, draw: int) -> bool:
    """What stages and workers prefer."""
    if draw < 58:
        stage = below(seed, state.num_stages[0])
        state.whole[stage] = 1 - state.whole[stage]
        return True
    if draw < 66:
        return _change_worker_rule(world, state, seed, period_ns)
    if draw < 70:
        kind = below(seed, 3)
        state.pace_ns[kind] = max(0, state.pace_ns[kind] + _step_ns(seed, period_ns))
        return True
    return _shift_wishes(state, seed, period_ns)


@uncounted
def _step_ns(seed: np.ndarray, period_ns: int) -> int:
    """Up to a period, of any magnitude, sooner or later."""
    size = period_ns * 2.0 ** (-8.0 * unit(seed))
    return int(size if below(seed, 2) == 0 else -size)


@uncounted
def _shift_boundaries(state: State, seed: np.ndarray) -> bool:
    """Neighbouring boundaries by one layer, mostly one of them: layers go from end to end."""
    count = state.num_stages[0]
    if count == 1:
        return False
    first = 1 + below(seed, count - 1)
    last = first
    while last + 1 < count and below(seed, 2) == 0:
        last += 1
    step = 2 * below(seed, 2) - 1
    if below(seed, 4) == 0:
        step *= 2
    if not can_shift(state, first, last, step):
        return False
    for boundary in range(first, last + 1):
        state.cut[boundary] += step
    return True


@uncounted
def _give_away(world: World, state: State, seed: np.ndarray) -> bool:
    """A stage to another worker."""
    num_workers = world.sizes[0]
    if num_workers == 1:
        return False
    stage = below(seed, state.num_stages[0])
    state.worker[stage] = (state.worker[stage] + 1 + below(seed, num_workers - 1)) % num_workers
    return True


@uncounted
def _swap_workers(state: State, seed: np.ndarray) -> bool:
    """Two stages change places."""
    one, other = below(seed, state.num_stages[0]), below(seed, state.num_stages[0])
    if state.worker[one] == state.worker[other]:
        return False
    state.worker[one], state.worker[other] = state.worker[other], state.worker[one]
    return True


@uncounted
def _split(world: World, state: State, seed: np.ndarray) -> bool:
    """A stage becomes two, on its own worker or on another one."""
    count = state.num_stages[0]
    stage = below(seed, count)
    size = state.cut[stage + 1] - state.cut[stage]
    if count == len(state.worker) or size < 2:
        return False
    for later in range(count, stage, -1):
        state.cut[later + 1] = state.cut[later]
        if later > stage:
            state.worker[later] = state.worker[later - 1]
            state.whole[later] = state.whole[later - 1]
            for kind in range(3):
                state.shift_ns[kind, later] = state.shift_ns[kind, later - 1]
    state.cut[stage + 1] = state.cut[stage] + 1 + below(seed, size - 1)
    state.worker[stage + below(seed, 2)] = below(seed, world.sizes[0])
    state.num_stages[0] = count + 1
    return True


@uncounted
def _merge(state: State, seed: np.ndarray) -> bool:
    """Two neighbours become one, on the worker of the first or of the second."""
    count = state.num_stages[0]
    if count < 2:
        return False
    stage = below(seed, count - 1)
    state.worker[stage] = state.worker[stage + below(seed, 2)]
    for later in range(stage + 1, count):
        state.cut[later] = state.cut[later + 1]
        if later + 1 < count:
            state.worker[later] = state.worker[later + 1]
            state.whole[later] = state.whole[later + 1]
            for kind in range(3):
                state.shift_ns[kind, later] = state.shift_ns[kind, later + 1]
    state.num_stages[0] = count - 1
    return True


@uncounted
def _change_worker_rule(world: World, state: State, seed: np.ndarray, period_ns: int) -> bool:
    """How long a worker waits, or how much it likes to alternate."""
    worker, row = below(seed, world.sizes[0]), below(seed, 3)
    values = state.turn_ns if row == 2 else state.wait_ns[row]
    if values[worker] > 0 and below(seed, 3) == 0:
        values[worker] = 0
    else:
        values[worker] = max(0, values[worker] + _step_ns(seed, period_ns))
    return True


@uncounted
def _shift_wishes(state: State, seed: np.ndarray, period_ns: int) -> bool:
    """All actions of a kind of a stage, or of some in a row, are wanted sooner or later."""
    count = state.num_stages[0]
    draw = below(seed, 8)
    kind = 2 if draw == 0 else draw % 2
    stage = below(seed, count)
    step_ns = _step_ns(seed, 4 * period_ns)
    state.shift_ns[kind, stage] += step_ns
    while stage + 1 < count and below(seed, 3) == 0:
        stage += 1
        state.shift_ns[kind, stage] += step_ns
    return True
