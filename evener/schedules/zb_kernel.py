"""The compiled part of the automatic zero-bubble schedules: rounds of one F and one I per stage."""

from typing import NamedTuple

from evener.compiled import compiled
from evener.schedules.list_kernel import BACKWARD, FORWARD, NOBODY, WEIGHT, Int, Taken, World


class Switches(NamedTuple):
    """The three choices of the paper.

    overrun_first_backward: fill the wait for the first I with forwards even if the last of them
        then delays it.
    skip_forwards: a stage two or more forwards ahead of the next may leave one out of a round.
    fill_short_waits: run a W in a wait shorter than W even if the stage can afford to be idle.
    """

    overrun_first_backward: bool
    skip_forwards: bool
    fill_short_waits: bool


class Rounds(NamedTuple):
    """Where the rounds stand; all int64.

    ready_ns: [kind, cell], when an action can start. done: [kind, stage]. free_ns, idle_ns,
    held_bytes: [stage], idle since its first action. extra: [stage], forwards of a round.
    """

    ready_ns: Int
    done: Int
    free_ns: Int
    idle_ns: Int
    held_bytes: Int
    extra: Int


@compiled
def run_rounds(world: World, switches: Switches, state: Rounds, taken: Taken) -> None:
    """Write down all actions; stage s is alone on worker s."""
    num_stages = world.stage.shape[0]
    num_microbatches = world.lane.shape[0] // num_stages
    for stage in range(num_stages):
        _put(world, state, taken, FORWARD, stage)
    _plan_warm_up(world, switches, state, num_microbatches)
    for stage in range(num_stages):
        for _ in range(state.extra[stage]):
            _put(world, state, taken, FORWARD, stage)
    for stage in range(num_stages - 1, -1, -1):
        _put(world, state, taken, BACKWARD, stage)
    for _ in range(1, num_microbatches):
        _plan_round(world, switches, state, num_microbatches)
        for stage in range(num_stages):
            if state.extra[stage] == 1:
                _make_room(world, state, taken, stage)
                _fill_wait(world, switches, state, taken, FORWARD, stage)
                _put(world, state, taken, FORWARD, stage)
        for stage in range(num_stages - 1, -1, -1):
            _fill_wait(world, switches, state, taken, BACKWARD, stage)
            _put(world, state, taken, BACKWARD, stage)
    for stage in range(num_stages):
        while state.done[WEIGHT, stage] < num_microbatches:
            _put(world, state, taken, WEIGHT, stage)


@compiled
def _put(world: World, state: Rounds, taken: Taken, kind: int, stage: int) -> None:
    """Append the next action of the kind on the stage."""
    cell = world.first_cell[stage] + state.done[kind, stage]
    start_ns = max(state.free_ns[stage], state.ready_ns[kind, cell])
    end_ns = start_ns + world.duration_ns[kind, stage]
    count = state.done.sum()
    taken.cell[count], taken.kind[count], taken.start_ns[count] = cell, kind, start_ns
    if state.done[FORWARD, stage] > 0:
        state.idle_ns[stage] += start_ns - state.free_ns[stage]
    state.free_ns[stage] = end_ns
    state.done[kind, stage] += 1
    state.held_bytes[stage] += world.held_bytes[kind, stage]
    if kind == FORWARD:
        if world.after[cell] == NOBODY:
            state.ready_ns[BACKWARD, cell] = end_ns
        else:
            state.ready_ns[FORWARD, world.after[cell]] = end_ns + world.after_ns[cell]
        return
    state.held_bytes[stage] -= world.held_bytes[kind - 1, stage]
    if kind == WEIGHT:
        return
    state.ready_ns[WEIGHT, cell] = end_ns
    if world.before[cell] != NOBODY:
        state.ready_ns[BACKWARD, world.before[cell]] = end_ns + world.before_ns[cell]


@compiled
def _plan_warm_up(world: World, switches: Switches, state: Rounds, num_microbatches: int) -> None:
    """Choose how many forwards more each stage runs while it waits for its first gradient."""
    last = world.stage.shape[0] - 1
    state.extra[last] = 0
    end_ns = state.free_ns[last] + world.duration_ns[BACKWARD, last]
    for stage in range(last - 1, -1, -1):
        arrival_ns = end_ns + world.before_ns[world.first_cell[stage + 1]]
        busy_ns, held_bytes, extra = state.free_ns[stage], state.held_bytes[stage], 0
        forward_ns = world.duration_ns[FORWARD, stage]
        spare_ns = 0 if switches.overrun_first_backward else forward_ns - 1
        while 1 + extra < num_microbatches and busy_ns + spare_ns < arrival_ns:
            held_bytes += world.held_bytes[FORWARD, stage]
            if held_bytes > world.cap_bytes[stage]:
                break
            busy_ns += forward_ns
            extra += 1
        state.extra[stage] = extra
        end_ns = max(busy_ns, arrival_ns) + world.duration_ns[BACKWARD, stage]
    for stage in range(1, last + 1):
        before = state.extra[stage - 1]
        ahead = before if before == num_microbatches - 1 else max(0, before - 1)
        state.extra[stage] = min(state.extra[stage], ahead)


@compiled
def _plan_round(world: World, switches: Switches, state: Rounds, num_microbatches: int) -> None:
    """Choose which stages run a forward in the next round; one that does not holds up no other."""
    last = world.stage.shape[0] - 1
    wanted = 1
    for stage in range(last, -1, -1):
        if state.done[FORWARD, stage] == num_microbatches:
            state.extra[stage] = 0
            continue
        if switches.skip_forwards and stage < last and _can_skip(world, state, stage):
            wanted = 0
        state.extra[stage] = wanted


@compiled
def _can_skip(world: World, state: Rounds, stage: int) -> bool:
    """Whether the stage is ahead, and idling delays it less than a forward the next gradient."""
    if state.done[FORWARD, stage] < state.done[FORWARD, stage + 1] + 2:
        return False
    after = stage + 1
    next_ns = state.free_ns[after] + world.duration_ns[FORWARD, after]
    next_ns += world.duration_ns[BACKWARD, after] + world.before_ns[world.first_cell[after]]
    if state.free_ns[stage] >= next_ns:
        return True
    end_ns = state.free_ns[stage] + world.duration_ns[FORWARD, stage]
    held_bytes = state.held_bytes[stage] + world.held_bytes[FORWARD, stage]
    for _ in range(state.done[BACKWARD, stage] - state.done[WEIGHT, stage]):
        if held_bytes <= world.cap_bytes[stage]:
            break
        held_bytes -= world.held_bytes[BACKWARD, stage]
        end_ns += world.duration_ns[WEIGHT, stage]
    if end_ns <= next_ns:
        return False
    return bool(next_ns - state.free_ns[stage] <= _may_idle_ns(state, stage))


@compiled
def _may_idle_ns(state: Rounds, stage: int) -> int:
    """How much longer the stage can idle without becoming the one that idled longest."""
    return int(state.idle_ns.max() - state.idle_ns[stage])


@compiled
def _make_room(world: World, state: Rounds, taken: Taken, stage: int) -> None:
    """Run W until one more forward fits."""
    while (
        state.held_bytes[stage] + world.held_bytes[FORWARD, stage] > world.cap_bytes[stage]
        and state.done[WEIGHT, stage] < state.done[BACKWARD, stage]
    ):
        _put(world, state, taken, WEIGHT, stage)


@compiled
def _fill_wait(
    world: World, switches: Switches, state: Rounds, taken: Taken, kind: int, stage: int
) -> None:
    """Run W while the stage waits for its next action of the kind."""
    arrival_ns = state.ready_ns[kind, world.first_cell[stage] + state.done[kind, stage]]
    weight_ns = world.duration_ns[WEIGHT, stage]
    while state.done[WEIGHT, stage] < state.done[BACKWARD, stage]:
        wait_ns = arrival_ns - state.free_ns[stage]
        if wait_ns <= 0:
            return
        if weight_ns > wait_ns:
            if switches.fill_short_waits or wait_ns > _may_idle_ns(state, stage):
                _put(world, state, taken, WEIGHT, stage)
            return
        _put(world, state, taken, WEIGHT, stage)
