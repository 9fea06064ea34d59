"""The compiled part of the simulator: one pass over flat arrays of integers.

The start of an action is the latest of two things: its *lane* (the stream of a worker, or one
direction between two workers) is free, and what it needs has ended and has reached it.  Both are
known when actions are taken in topological order, so the times are one linear recurrence.  What a
worker holds depends on the order alone, and its idle time is what its compute actions leave over.

``sim.layout`` makes the arrays; ``sim.reference`` computes the same, readably.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evener.compiled import compiled

Int = NDArray[np.int64]
Index = NDArray[np.uint32]
"""Indices are unsigned: negative ones would make numba test the sign at every access."""

ALONE, RECEIVE, MEMBER, LAST_MEMBER = range(4)
"""Ways to act: on its own; when its SEND does; with others, of which more or none follow.

The others are the members of a collective, or the other action of a braid.
"""


class Order(NamedTuple):
    """Actions in topological order, n of them; members of a collective stand side by side.

    kind_of, flat, need: uint32[n], the action's class, its index in flat order, and the flat index
    of one action that it needs (n if it needs none).
    more_needs, more_wires: uint32, the further needs of all actions one after another, and the
    wire on which each arrives.
    flat_class: uint32[n], classes in flat order. first: int64[worker + 1], flat index of each
    worker's first action, and n.
    first_backward, last_forward: int64[worker], flat indices, -1 if there is none.
    """

    action_class: Index
    flat: Index
    need: Index
    more_needs: Index
    more_wires: Index
    flat_class: Index
    first: Int
    first_backward: Int
    last_forward: Int


class Classes(NamedTuple):
    """Per class of actions, what they have in common whatever they cost.

    way: int8, ALONE, RECEIVE, MEMBER or LAST_MEMBER. lane: uint32; those below the number of
    workers are their compute streams. num_more: int64, needs beyond the first. size: int64, how
    many actions are in the class.
    """

    way: NDArray[np.int8]
    lane: Index
    num_more: Int
    size: Int


class Costs(NamedTuple):
    """What the classes cost. All int64.

    duration_ns, delay_ns: [class], of the action, and of its first need on the way to it.
    wire_ns: [wire], delay of a further need. at_start_bytes, at_end_bytes: [class], change of what
    the worker holds when the action is issued and when it ends. static_bytes: [worker].
    """

    duration_ns: Int
    delay_ns: Int
    wire_ns: Int
    at_start_bytes: Int
    at_end_bytes: Int
    static_bytes: Int


class Result(NamedTuple):
    """Where a run is written to; all int64.

    start_ns, end_ns: [n + 1] in flat order; the last stands for a need that does not exist.
    held_bytes: [n]. peak_bytes, busy_ns, warm_up_ns, cool_down_ns: [worker]. lane_ns: [lane].
    """

    start_ns: Int
    end_ns: Int
    held_bytes: Int
    peak_bytes: Int
    busy_ns: Int
    warm_up_ns: Int
    cool_down_ns: Int
    lane_ns: Int


@compiled
def run(order: Order, classes: Classes, costs: Costs, result: Result) -> int:
    """Fill the whole result; returns the time of the step."""
    step_ns = play(order, classes, costs, result)
    hold(order, costs, result)
    split_idle(order, classes, costs, result, step_ns)
    return step_ns


@compiled
def play(order: Order, classes: Classes, costs: Costs, result: Result) -> int:
    """Fill start and end of every action; returns the latest end."""
    start_ns, end_ns, lane_ns = result.start_ns, result.end_ns, result.lane_ns
    lane_ns[:] = 0
    end_ns[-1] = 0
    step_ns = 0
    more = 0
    num_members, group_start_ns, group_duration_ns = 0, 0, 0
    for k in range(order.flat.shape[0]):
        what = order.action_class[k]
        index, need = order.flat[k], order.need[k]
        delay_ns = costs.delay_ns[what]
        if classes.way[what] == RECEIVE:
            start_ns[index] = start_ns[need] + delay_ns
            end_ns[index] = end_ns[need] + delay_ns
            step_ns = max(step_ns, end_ns[index])
            continue
        lane = classes.lane[what]
        ready_ns = max(lane_ns[lane], end_ns[need] + delay_ns)
        for _ in range(classes.num_more[what]):
            arrival_ns = end_ns[order.more_needs[more]] + costs.wire_ns[order.more_wires[more]]
            ready_ns = max(ready_ns, arrival_ns)
            more += 1
        duration_ns = costs.duration_ns[what]
        if classes.way[what] == ALONE:
            start_ns[index] = ready_ns
            end_ns[index] = ready_ns + duration_ns
            lane_ns[lane] = ready_ns + duration_ns
            continue
        num_members += 1
        group_start_ns = max(group_start_ns, ready_ns)
        group_duration_ns = max(group_duration_ns, duration_ns)
        if classes.way[what] == LAST_MEMBER:
            for j in range(k + 1 - num_members, k + 1):
                start_ns[order.flat[j]] = group_start_ns
                end_ns[order.flat[j]] = group_start_ns + group_duration_ns
                lane_ns[classes.lane[order.action_class[j]]] = group_start_ns + group_duration_ns
            num_members, group_start_ns, group_duration_ns = 0, 0, 0
    for lane in range(lane_ns.shape[0]):
        step_ns = max(step_ns, lane_ns[lane])
    return step_ns


@compiled
def hold(order: Order, costs: Costs, result: Result) -> None:
    """Fill what each worker holds after each of its actions, and the most that it ever holds."""
    for worker in range(result.peak_bytes.shape[0]):
        now_bytes = peak_bytes = costs.static_bytes[worker]
        for index in range(order.first[worker], order.first[worker + 1]):
            what = order.flat_class[index]
            now_bytes += costs.at_start_bytes[what]
            peak_bytes = max(peak_bytes, now_bytes)
            now_bytes += costs.at_end_bytes[what]
            peak_bytes = max(peak_bytes, now_bytes)
            result.held_bytes[index] = now_bytes
        result.peak_bytes[worker] = peak_bytes


@compiled
def split_idle(order: Order, classes: Classes, costs: Costs, result: Result, step_ns: int) -> None:
    """Fill busy, warm-up and cool-down time of each worker; ``sim.stats`` defines them."""
    start_ns, end_ns = result.start_ns, result.end_ns
    num_workers = result.busy_ns.shape[0]
    result.busy_ns[:] = 0
    for what in range(classes.size.shape[0]):
        if classes.lane[what] < num_workers and classes.way[what] != RECEIVE:
            result.busy_ns[classes.lane[what]] += classes.size[what] * costs.duration_ns[what]
    warm_ns, cool_ns = step_ns, 0
    for worker in range(num_workers):
        if order.first_backward[worker] >= 0:
            warm_ns = min(warm_ns, start_ns[order.first_backward[worker]])
        if order.last_forward[worker] >= 0:
            cool_ns = max(cool_ns, end_ns[order.last_forward[worker]])
    cool_ns = max(cool_ns, warm_ns)
    for worker in range(num_workers):
        first, last = order.first[worker], order.first[worker + 1]
        idle_ns, free_ns, index = 0, 0, first
        while free_ns < warm_ns and index < last:
            if classes.lane[order.flat_class[index]] == worker:
                idle_ns += max(0, min(start_ns[index], warm_ns) - free_ns)
                free_ns = end_ns[index]
            index += 1
        result.warm_up_ns[worker] = idle_ns + max(0, warm_ns - free_ns)
        idle_ns, free_ns, index = 0, step_ns, last - 1
        while free_ns > cool_ns and index >= first:
            if classes.lane[order.flat_class[index]] == worker:
                idle_ns += max(0, free_ns - max(end_ns[index], cool_ns))
                free_ns = start_ns[index]
            index -= 1
        result.cool_down_ns[worker] = idle_ns + max(0, free_ns - cool_ns)


@compiled
def play_many(
    order: Order, classes: Classes, costs: Costs, durations_ns: Int, result: Result
) -> Int:
    """Times of the step for each row of durations; int64[batch] from int64[batch, class]."""
    steps_ns = np.empty(durations_ns.shape[0], dtype=np.int64)
    for row in range(durations_ns.shape[0]):
        row_costs = Costs(
            durations_ns[row],
            costs.delay_ns,
            costs.wire_ns,
            costs.at_start_bytes,
            costs.at_end_bytes,
            costs.static_bytes,
        )
        steps_ns[row] = play(order, classes, row_costs, result)
    return steps_ns
