"""The compiled part of the list scheduler: an event loop over flat arrays of integers.

A *lane* is a stage on a worker, a *cell* one microbatch on its lane.  Lanes stand worker by worker,
cells lane by lane in the order of microbatches.  On every lane the forwards run in that order, and
so do the backwards and the weight gradients; between lanes and kinds the priorities decide.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evener.compiled import compiled

Int = NDArray[np.int64]

FORWARD, BACKWARD, WEIGHT = range(3)
"""Rows of all arrays that have one per kind; without a split, BACKWARD is the whole of it."""

NEVER = np.int64(2**62)
NOBODY = -1


class World(NamedTuple):
    """What is to be scheduled; all int64.

    first_lane: [worker + 1]. first_cell: [lane + 1]. worker, stage: [lane].
    lane, microbatch: [cell]. after, before: [cell], the cell of the same microbatch on the next
    and on the previous stage, or NOBODY. after_ns, before_ns: [cell], time of the message to it.
    duration_ns: [kind, lane]. held_bytes: [kind, lane], what a cell holds once the action was
    issued (F) or has ended. cap_bytes: [worker].
    """

    first_lane: Int
    first_cell: Int
    worker: Int
    stage: Int
    lane: Int
    microbatch: Int
    after: Int
    before: Int
    after_ns: Int
    before_ns: Int
    duration_ns: Int
    held_bytes: Int
    cap_bytes: Int


class Rule(NamedTuple):
    """Which of several possible actions an idle worker takes; arrays of int64.

    rank: [2, kind], lower goes first; row 1 after a backward, row 0 otherwise.
    weights: [kind, 2], of microbatch and stage in the order within a kind; the lowest sum first.
    least_forwards, most_forwards: [worker], of before its first backward.
    at_once: [kind, microbatch], 0 if what its worker could not have received during its last action
        lets everything else go first.
    turn: [kind, cell], when it is the turn of each F and I among those of its worker, if that
        order is fixed.
    fixed: 1 if it is; then only W is free to choose.
    patient: 1 if a weight gradient does not start when it would delay what is on its way.
    split: 1 if the weight gradient is an action of its own.
    """

    rank: Int
    weights: Int
    least_forwards: Int
    most_forwards: Int
    at_once: Int
    turn: Int
    fixed: int
    patient: int
    split: int


class State(NamedTuple):
    """Where the event loop stands; all int64.

    ready_ns: [kind, cell], when an action can start, NEVER if not yet known.
    head: [kind, lane], the next cell. free_ns: [worker]. num_forwards, num_backwards: [worker].
    last_kind, last_ns: [worker], of its latest action and when that started.
    lane_bytes: [lane], held now.
    next_ns, next_cell, next_kind: [worker], what it would do next, as far as is known.
    """

    ready_ns: Int
    head: Int
    free_ns: Int
    num_forwards: Int
    num_backwards: Int
    last_kind: Int
    last_ns: Int
    lane_bytes: Int
    next_ns: Int
    next_cell: Int
    next_kind: Int


class Taken(NamedTuple):
    """The actions, those of a worker in its order; all int64[number of actions]."""

    cell: Int
    kind: Int
    start_ns: Int


@compiled
def run(world: World, rule: Rule, state: State, taken: Taken) -> int:
    """Take one action after another until none is left or none is possible; returns how many.

    Where memory lets no worker reach its count of forwards before the first backward, the counts
    are given up.
    """
    num_workers = world.first_lane.shape[0] - 1
    for worker in range(num_workers):
        _choose(world, rule, state, worker)
    count, has_counts = 0, True
    while count < taken.cell.shape[0]:
        worker = 0
        for other in range(1, num_workers):
            if state.next_ns[other] < state.next_ns[worker]:
                worker = other
        if state.next_ns[worker] >= NEVER:
            if not has_counts:
                break
            has_counts = False
            rule.least_forwards[:] = 0
            rule.most_forwards[:] = NEVER
            for other in range(num_workers):
                _choose(world, rule, state, other)
            continue
        taken.cell[count] = state.next_cell[worker]
        taken.kind[count] = state.next_kind[worker]
        taken.start_ns[count] = state.next_ns[worker]
        count += 1
        told = _take(world, rule, state, worker)
        _choose(world, rule, state, worker)
        if told != NOBODY and told != worker:
            _choose(world, rule, state, told)
    return count


@compiled
def _take(world: World, rule: Rule, state: State, worker: int) -> int:
    """Do what the worker chose; returns the worker that can do something because of it."""
    cell, kind = state.next_cell[worker], state.next_kind[worker]
    lane = world.lane[cell]
    end_ns = state.next_ns[worker] + world.duration_ns[kind, lane]
    state.free_ns[worker] = end_ns
    state.last_kind[worker], state.last_ns[worker] = kind, state.next_ns[worker]
    state.head[kind, lane] += 1
    state.lane_bytes[lane] += world.held_bytes[kind, lane]
    if kind == FORWARD:
        state.num_forwards[worker] += 1
        target, there = world.after[cell], FORWARD
        if target == NOBODY:
            state.ready_ns[BACKWARD, cell] = end_ns
            return NOBODY
        arrival_ns = end_ns + world.after_ns[cell]
    elif kind == BACKWARD:
        state.num_backwards[worker] += 1
        state.lane_bytes[lane] -= world.held_bytes[FORWARD, lane]
        if rule.split == 1:
            state.ready_ns[WEIGHT, cell] = end_ns
        target, there = world.before[cell], BACKWARD
        if target == NOBODY:
            return NOBODY
        arrival_ns = end_ns + world.before_ns[cell]
    else:
        state.lane_bytes[lane] -= world.held_bytes[BACKWARD, lane]
        return NOBODY
    state.ready_ns[there, target] = arrival_ns
    return int(world.worker[world.lane[target]])


@compiled
def _choose(world: World, rule: Rule, state: State, worker: int) -> None:
    """Find what the worker does next, given all that is known to be on its way.

    What can start first does; of several the one with the best priority.
    """
    free_ns = state.free_ns[worker]
    rank = rule.rank[int(state.last_kind[worker] == BACKWARD)]
    best, best_cell, best_kind = (NEVER, 0, 0, 0), NOBODY, NOBODY
    weight, weight_cell = (NEVER, 0, 0, 0), NOBODY
    for lane in range(world.first_lane[worker], world.first_lane[worker + 1]):
        stage, end = world.stage[lane], world.first_cell[lane + 1]
        for kind in range(3):
            cell = state.head[kind, lane]
            if cell >= end or state.ready_ns[kind, cell] >= NEVER:
                continue
            start_ns = max(state.ready_ns[kind, cell], free_ns)
            microbatch = world.microbatch[cell]
            place = rule.weights[kind, 0] * microbatch + rule.weights[kind, 1] * stage
            if kind == WEIGHT:
                priority = (start_ns, 0, rank[kind], place)
                if priority < weight:
                    weight, weight_cell = priority, cell
                continue
            waits = rule.at_once[kind, microbatch] == 0 and start_ns == free_ns
            late = int(waits and _came_late(world, state, cell, kind))
            priority = (start_ns, late, rank[kind], place)
            if priority < best and _allowed(world, rule, state, lane, kind):
                best, best_cell, best_kind = priority, cell, kind
    if weight_cell != NOBODY and weight < best:
        weight_ns = world.duration_ns[WEIGHT, world.lane[weight_cell]]
        if rule.patient == 0 or best[0] >= weight[0] + weight_ns:
            best, best_cell, best_kind = weight, weight_cell, WEIGHT
    state.next_ns[worker] = best[0]
    state.next_cell[worker] = best_cell
    state.next_kind[worker] = best_kind


@compiled
def _came_late(world: World, state: State, cell: int, kind: int) -> bool:
    """Whether the worker's last action had begun before the message that this one needs left."""
    source = world.before[cell] if kind == FORWARD else world.after[cell]
    if source == NOBODY:
        return False
    worker = world.worker[world.lane[cell]]
    message_ns = world.after_ns[source] if kind == FORWARD else world.before_ns[source]
    far = world.worker[world.lane[source]] != worker
    return bool(far and state.ready_ns[kind, cell] - message_ns > state.last_ns[worker])


@compiled
def _allowed(world: World, rule: Rule, state: State, lane: int, kind: int) -> bool:
    """Whether order, warm-up and memory let the next F or I start, whenever it is ready."""
    worker = world.worker[lane]
    if rule.fixed == 1:
        turn = state.num_forwards[worker] + state.num_backwards[worker]
        if rule.turn[kind, state.head[kind, lane]] != turn:
            return False
        return kind == BACKWARD or _fits(world, state, worker, lane, False)
    if kind == FORWARD:
        warming_up = state.num_backwards[worker] == 0
        if warming_up and state.num_forwards[worker] >= rule.most_forwards[worker]:
            return False
        return _fits(world, state, worker, lane, True)
    if state.num_backwards[worker] > 0:
        return True
    if state.num_forwards[worker] >= rule.least_forwards[worker]:
        return True
    for other in range(world.first_lane[worker], world.first_lane[worker + 1]):
        has_more = state.head[FORWARD, other] < world.first_cell[other + 1]
        if has_more and _fits(world, state, worker, other, True):
            return False
    return True


@compiled
def _fits(world: World, state: State, worker: int, lane: int, leaves_room: bool) -> bool:
    """Whether the cap has room for one more forward on the lane.

    leaves_room: also for one cell of every other lane that has forwards left.  So the oldest
        microbatch that is not through can always go on, and the cap cannot deadlock.
    """
    held_bytes = 0
    for other in range(world.first_lane[worker], world.first_lane[worker + 1]):
        cell_bytes = world.held_bytes[FORWARD, other]
        if other == lane:
            held_bytes += state.lane_bytes[other] + cell_bytes
        elif leaves_room and state.head[FORWARD, other] < world.first_cell[other + 1]:
            held_bytes += max(state.lane_bytes[other], cell_bytes)
        else:
            held_bytes += state.lane_bytes[other]
    return bool(held_bytes <= world.cap_bytes[worker])
