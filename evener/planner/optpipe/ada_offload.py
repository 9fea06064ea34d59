"""AdaOffload: keep what fits, and move out or recompute what is needed last.

Source: OptPipe (arXiv 2510.05186), section on the warm start, by its idea: memory is filled to the
limit before anything leaves it.  Of what is there, the cell whose backward is farthest goes.
"""

from evener.compiled import compiled
from evener.planner.optpipe.bench import Bench
from evener.planner.optpipe.orders import Orders
from evener.planner.optpipe.place_copies import duration_ns, least_levels
from evener.planner.optpipe.world import (
    BACKWARD,
    FORWARD,
    KEEP,
    OFFLOAD,
    RECOMPUTE,
    World,
)

AS_FITS, ALL_OUT, ALL_AGAIN = range(3)
"""Policies: a cell is offloaded if the link has time for it, else recomputed; or always one."""


@compiled
def fill_memory(world: World, orders: Orders, bench: Bench, policy: int) -> bool:
    """Choose what becomes of every cell; False if memory is too small even so."""
    for worker in range(world.sizes[0]):
        while True:
            place = least_levels(world, orders, worker, bench)
            if place == orders.length[worker]:
                break
            cell = _farthest(world, orders, worker, bench, place)
            if cell < 0:
                return False
            orders.mode[cell] = _mode(world, orders, worker, bench, cell, policy)
    return True


@compiled
def _farthest(world: World, orders: Orders, worker: int, bench: Bench, place: int) -> int:
    """Of the cells that are kept across a place, the one whose backward comes last; or -1."""
    best, best_at = -1, place
    if world.may[OFFLOAD] + world.may[RECOMPUTE] == 0:
        return best
    for number in range(place):
        code = orders.action[worker, number]
        cell = code // 4
        if code % 4 != FORWARD or orders.mode[cell] != KEEP:
            continue
        if bench.at[cell, BACKWARD] > best_at:
            best, best_at = cell, bench.at[cell, BACKWARD]
    return best


@compiled
def _mode(world: World, orders: Orders, worker: int, bench: Bench, cell: int, policy: int) -> int:
    if world.may[RECOMPUTE] == 0:
        return OFFLOAD
    if world.may[OFFLOAD] == 0 or policy == ALL_AGAIN:
        return RECOMPUTE
    if policy == ALL_OUT:
        return OFFLOAD
    # What leaves between the two actions takes the link both ways besides this cell.
    copies_ns, window_ns = 2 * world.copy_ns[cell // world.sizes[1]], 0
    for place in range(bench.at[cell, FORWARD] + 1, bench.at[cell, BACKWARD]):
        code = orders.action[worker, place]
        other, kind = code // 4, code % 4
        window_ns += duration_ns(world, orders, other, kind)
        if kind == FORWARD and orders.mode[other] == OFFLOAD:
            copies_ns += world.copy_ns[other // world.sizes[1]]
    return OFFLOAD if copies_ns <= window_ns else RECOMPUTE
