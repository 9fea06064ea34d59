"""Simulated annealing: actions change places in their lists, cells change what becomes of them."""

from math import log

import numpy as np

from evener.compiled import compiled
from evener.planner.joint.lists import put
from evener.planner.joint.random_numbers import below, unit
from evener.planner.optpipe.bench import Bench
from evener.planner.optpipe.longest_chain import trace
from evener.planner.optpipe.orders import Orders
from evener.planner.optpipe.place_copies import is_idle
from evener.planner.optpipe.play import play, replay
from evener.planner.optpipe.world import (
    AGAIN,
    BACKWARD,
    FORWARD,
    NEVER,
    OFFLOAD,
    RECOMPUTE,
    WEIGHT,
    Int,
    World,
)

_MOST_LEAD = 24
_FARTHEST = 24


@compiled
def anneal(
    world: World,
    pair: tuple[Orders, Orders],
    bench: Bench,
    seed: np.ndarray,
    found_ns: Int,
    cooling: tuple[float, float, int],
) -> None:
    """Change the current orders step by step.

    pair: the current orders and the best ones. found_ns: [2], the time of each; all are changed in
    place. cooling: how much worse a step may become on average, at first and at last, in
    nanoseconds, and how many orders to judge.
    """
    current, best = pair
    hot_ns, cold_ns, num_judged = cooling
    play(world, current, bench, found_ns[0])
    trace(world, current, bench)
    for number in range(num_judged):
        heat_ns = hot_ns * (cold_ns / hot_ns) ** (number / num_judged)
        limit_ns = found_ns[0] + int(-log(unit(seed)) * heat_ns)
        drawn = below(seed, 16)
        cell = mode = whole = lead = 0
        if drawn < 11:
            worker, source, target = _draw_places(world, current, bench, seed)
            if source == target:
                continue
        else:
            cell = _draw_cell(current, bench, seed)
            mode, whole, lead = current.mode[cell], current.whole[cell], current.lead[cell]
            if not _turn(world, current, seed, cell, drawn):
                continue
            worker = world.worker[cell // world.sizes[1]]
            source, target = _misplaced(current, worker, cell)
        put(current.action[worker], source, target)
        bench.stale[worker] = 1
        step_ns = replay(world, current, bench, limit_ns)
        if step_ns >= NEVER:
            put(current.action[worker], target, source)
            if drawn >= 11:
                current.mode[cell], current.whole[cell], current.lead[cell] = mode, whole, lead
            bench.stale[worker] = 1
            continue
        trace(world, current, bench)
        found_ns[0] = step_ns
        if step_ns < found_ns[1]:
            found_ns[1] = step_ns
            best.action[:] = current.action
            best.mode[:] = current.mode
            best.whole[:] = current.whole
            best.lead[:] = current.lead


@compiled
def _turn(world: World, orders: Orders, seed: np.ndarray, cell: int, drawn: int) -> bool:
    """Change what becomes of a cell; False if that changes nothing."""
    if drawn < 14:
        mode = below(seed, 3)
        if mode == orders.mode[cell] or world.may[mode] == 0:
            return False
        orders.mode[cell] = mode
        return True
    if drawn < 15:
        orders.whole[cell] = 1 - orders.whole[cell]
        return True
    orders.lead[cell] = below(seed, _MOST_LEAD)
    return bool(orders.mode[cell] == OFFLOAD)


@compiled
def _misplaced(orders: Orders, worker: int, cell: int) -> tuple[int, int]:
    """Where an R or W stands that was idle until now, and where it should; equal if it is right."""
    at_forward = at_again = at_backward = at_weight = 0
    for place in range(orders.length[worker]):
        code = orders.action[worker, place]
        if code == 4 * cell + FORWARD:
            at_forward = place
        elif code == 4 * cell + AGAIN:
            at_again = place
        elif code == 4 * cell + BACKWARD:
            at_backward = place
        elif code == 4 * cell + WEIGHT:
            at_weight = place
    if orders.mode[cell] == RECOMPUTE and at_again < at_forward:
        return at_again, at_backward - 1
    if orders.mode[cell] == RECOMPUTE and at_again > at_backward:
        return at_again, at_backward
    if orders.whole[cell] == 0 and at_weight < at_backward:
        return at_weight, at_backward
    return 0, 0


@compiled
def _draw_cell(orders: Orders, bench: Bench, seed: np.ndarray) -> int:
    """Every second time one of the longest chain."""
    if below(seed, 2) == 0:
        return below(seed, len(orders.mode))
    worker, place = bench.chain[below(seed, bench.num_chain[0])]
    return int(orders.action[worker, place] // 4)


@compiled
def _draw_places(
    world: World, orders: Orders, bench: Bench, seed: np.ndarray
) -> tuple[int, int, int]:
    """A worker, the place of an action and its new place; equal places if that changes nothing.

    Mostly an action of the longest chain. What is done of a cell keeps its order.
    """
    if below(seed, 8) == 0:
        worker = below(seed, world.sizes[0])
        if orders.length[worker] == 0:
            return worker, 0, 0
        place = below(seed, orders.length[worker])
    else:
        worker, place = bench.chain[below(seed, bench.num_chain[0])]
    length = orders.length[worker]
    code = orders.action[worker, place]
    if is_idle(orders, code // 4, code % 4):
        return worker, place, place
    distance = 1
    while distance < _FARTHEST and below(seed, 3) > 0:
        distance += 1
    step = 1 if below(seed, 2) == 0 else -1
    target = place
    while distance > 0 and 0 <= target + step < length:
        other = orders.action[worker, target + step]
        if other // 4 == code // 4 and not is_idle(orders, other // 4, other % 4):
            break
        target += step
        distance -= 1
    return worker, place, target
