"""Simulated annealing over orders: actions of the longest chain change places in their lists."""

from math import log

import numpy as np

from evener.compiled import uncounted
from evener.planner.joint.lists import put
from evener.planner.joint.orders import Deck, Orders, holds_too_much, play, trace
from evener.planner.joint.random_numbers import below, unit
from evener.planner.joint.world import NEVER, Int, World


@uncounted
def anneal_orders(
    world: World,
    pair: tuple[Orders, Orders],
    deck: Deck,
    seed: np.ndarray,
    found_ns: Int,
    cooling: tuple[float, float, int],
) -> int:
    """Like ``anneal``; pair: the current lists and the best ones."""
    current, best = pair
    hot_ns, cold_ns, effort = cooling
    begin, num_judged = deck.spent[0], 0
    limited = world.cap_bytes[0] < NEVER
    play(world, current, deck, NEVER)
    trace(world, current, deck)
    while deck.spent[0] - begin < effort:
        num_judged += 1
        deck.spent[0] += 1
        heat_ns = hot_ns * (cold_ns / hot_ns) ** ((deck.spent[0] - begin) / effort)
        limit_ns = found_ns[0] + int(-log(unit(seed)) * heat_ns)
        boundary = below(seed, 16) == 0 and len(current.worker) > 1
        if boundary:
            first, last, step = _draw_boundaries(current, seed)
            if step == 0:
                continue
            _shift(current, first, last, step)
        else:
            worker, source, target = _draw_places(world, current, deck, seed)
            if source == target:
                continue
            put(current.action[worker], source, target)
        step_ns = play(world, current, deck, limit_ns)
        if step_ns < NEVER and limited and holds_too_much(world, current):
            step_ns = NEVER
        if step_ns >= NEVER:
            if boundary:
                _shift(current, first, last, -step)
            else:
                put(current.action[worker], target, source)
            continue
        trace(world, current, deck)
        found_ns[0] = step_ns
        if step_ns < found_ns[1]:
            found_ns[1] = step_ns
            _copy(current, best)
    return num_judged


@uncounted
def _copy(source: Orders, target: Orders) -> None:
    for stage in range(len(source.cut)):
        target.cut[stage] = source.cut[stage]
    for worker in range(len(source.length)):
        for place in range(source.length[worker]):
            target.action[worker, place] = source.action[worker, place]


@uncounted
def _draw_boundaries(orders: Orders, seed: np.ndarray) -> tuple[int, int, int]:
    """Boundaries side by side that move by one layer; a step of 0 if there is no room."""
    count, cut = len(orders.worker), orders.cut
    first = 1 + below(seed, count - 1)
    last = first
    while last + 1 < count and below(seed, 2) == 0:
        last += 1
    step = 2 * below(seed, 2) - 1
    has_room = cut[last] + 1 < cut[last + 1] if step > 0 else cut[first] - 1 > cut[first - 1]
    return first, last, step if has_room else 0


@uncounted
def _shift(orders: Orders, first: int, last: int, step: int) -> None:
    for boundary in range(first, last + 1):
        orders.cut[boundary] += step


@uncounted
def _draw_places(
    world: World, orders: Orders, deck: Deck, seed: np.ndarray
) -> tuple[int, int, int]:
    """A worker, the place of an action and its new place; equal places if that changes nothing.

    Mostly an action of the longest chain, in front of some that stand before it, or behind some.
    """
    if below(seed, 8) == 0:
        worker = below(seed, world.sizes[0])
        if orders.length[worker] == 0:
            return worker, 0, 0
        place = below(seed, orders.length[worker])
    else:
        drawn = below(seed, deck.num_critical[0])
        worker, place = deck.critical[drawn, 0], deck.critical[drawn, 1]
    distance = 1
    while distance < 16 and below(seed, 3) > 0:
        distance += 1
    target = place - distance if below(seed, 2) == 0 else place + distance
    target = min(max(target, 0), orders.length[worker] - 1)
    low, high = min(place, target), max(place, target)
    own = orders.action[worker, place]
    for other in range(low, high + 1):
        if orders.action[worker, other] != own:
            return worker, place, target
    return worker, place, place
