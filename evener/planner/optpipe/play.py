"""Time of a step: workers go through their lists, copies wait for a link that somebody shares.

Two workers on one link to their host never copy in the same direction at once: where the other one
copies, a copy begins behind a later action of its worker's list.  Where the worker cannot go on
without it, the order is given up: a list cannot say that its worker is to wait.
"""

from evener.compiled import compiled, inlined
from evener.planner.optpipe.bench import Bench
from evener.planner.optpipe.orders import Orders
from evener.planner.optpipe.place_copies import duration_ns, place_copies
from evener.planner.optpipe.world import (
    BACKWARD,
    FORWARD,
    FREE,
    IN,
    NEVER,
    OFFLOAD,
    OUT,
    Int,
    World,
)


@compiled
def play(world: World, orders: Orders, bench: Bench, limit_ns: int) -> int:
    """Time of a step; NEVER if it is more than the limit or cannot run to its end."""
    bench.stale[:] = 1
    return replay(world, orders, bench, limit_ns)


@compiled
def replay(world: World, orders: Orders, bench: Bench, limit_ns: int) -> int:
    """The same, where ``bench.stale`` tells whose orders have changed."""
    if not place_copies(world, orders, bench):
        return NEVER
    _begin(world, bench)
    end_ns = world.tail_ns.max()
    # Taken out of their tuples once: numba counts references each time.
    next_ns, place_of, lengths, lists = bench.next_ns, bench.place, bench.lengths, bench.lists
    fresh, free_ns, left_ns = bench.fresh, bench.free_ns, bench.left_ns
    ends_ns, num_left = bench.end_ns, lengths.sum()
    while num_left > 0:
        worker = _earliest(next_ns)
        now_ns = next_ns[worker]
        if now_ns >= NEVER:
            return NEVER
        if fresh[worker] == 1:
            num_left -= _issue(world, bench, worker)
            fresh[worker] = 0
            next_ns[worker] = _next_ns(orders, bench, worker)
            continue
        code = lists[worker, place_of[worker]]
        cell, kind = code // 8, code % 8
        if kind in (FREE, BACKWARD) and not _has_begun(bench, worker, cell, kind):
            return NEVER
        last_ns = now_ns
        if kind != FREE:
            own_ns = duration_ns(world, orders, cell, kind)
            last_ns += own_ns
            left_ns[worker] -= own_ns
        end_ns = max(end_ns, last_ns + left_ns[worker])
        if end_ns > limit_ns:
            return NEVER
        place_of[worker] += 1
        free_ns[worker] = last_ns
        ends_ns[cell, kind] = last_ns
        _note(bench, worker, code)
        num_left -= 1
        target = worker
        if kind in (FORWARD, BACKWARD):
            target = _arrive(world, bench, cell, kind, last_ns)
        if target != worker and next_ns[target] >= NEVER:
            next_ns[target] = _next_ns(orders, bench, target)
        fresh[worker] = _has_copies(bench, worker)
        next_ns[worker] = last_ns if fresh[worker] == 1 else _next_ns(orders, bench, worker)
    return int(end_ns)


@inlined
def _earliest(next_ns: Int) -> int:
    """Of all workers the one with the earliest event: so it sees who holds a link just then."""
    worker = 0
    for other in range(1, len(next_ns)):
        if next_ns[other] < next_ns[worker]:
            worker = other
    return worker


@inlined
def _arrive(world: World, bench: Bench, cell: int, kind: int, end_ns: int) -> int:
    """Hand on what a forward or backward made; returns who gets it."""
    num_microbatches, num_stages = world.sizes[1], len(world.worker)
    stage = cell // num_microbatches
    target = world.worker[stage]
    if kind == FORWARD and stage + 1 < num_stages:
        target = world.worker[stage + 1]
        bench.ready_ns[0, cell + num_microbatches] = end_ns + world.wire_ns[0, stage]
    elif kind == FORWARD:
        bench.ready_ns[1, cell] = end_ns
    elif stage > 0:
        target = world.worker[stage - 1]
        bench.ready_ns[1, cell - num_microbatches] = end_ns + world.wire_ns[1, stage]
    return int(target)


@compiled
def _begin(world: World, bench: Bench) -> None:
    bench.ready_ns[:] = NEVER
    bench.ready_ns[0, : world.sizes[1]] = 0
    bench.next_ns[:] = 0
    bench.free_ns[:] = 0
    bench.left_ns[:] = bench.work_ns + world.tail_ns
    bench.place[:] = 0
    bench.fresh[:] = 1
    bench.link_ns[:] = 0
    bench.first[:] = 0
    bench.last[:] = 0
    bench.played_lengths[:] = 0


@inlined
def _next_ns(orders: Orders, bench: Bench, worker: int) -> int:
    """When a worker starts its next compute action; NEVER if that is not known."""
    if bench.place[worker] >= bench.lengths[worker]:
        return NEVER
    free_ns = bench.free_ns[worker]
    code = bench.lists[worker, bench.place[worker]]
    cell, kind = code // 8, code % 8
    if kind == FORWARD:
        return int(max(free_ns, bench.ready_ns[0, cell]))
    if kind == FREE:
        return int(max(free_ns, bench.out_ns[cell]))
    if kind == BACKWARD:
        at_ns = max(free_ns, bench.ready_ns[1, cell])
        if orders.mode[cell] == OFFLOAD and bench.away[cell] == 2:
            at_ns = max(at_ns, bench.in_ns[cell])
        return int(at_ns)
    return int(free_ns)


@inlined
def _has_copies(bench: Bench, worker: int) -> int:
    """1 if a worker has copies to begin, or to take from its list."""
    if bench.first[0, worker] < bench.last[0, worker]:
        return 1
    if bench.first[1, worker] < bench.last[1, worker]:
        return 1
    if bench.place[worker] >= bench.lengths[worker]:
        return 0
    kind = bench.lists[worker, bench.place[worker]] % 8
    return int(kind in (OUT, IN))


@compiled
def _issue(world: World, bench: Bench, worker: int) -> int:
    """Take copies from the list, and begin those that may; returns how many were taken."""
    count = 0
    while bench.place[worker] < bench.lengths[worker]:
        code = bench.lists[worker, bench.place[worker]]
        kind, cell = code % 8, code // 8
        if kind not in (OUT, IN):
            break
        way, ends_ns = 0, bench.out_ns
        if kind == IN:
            way, ends_ns = 1, bench.in_ns
        bench.waiting[way, worker, bench.last[way, worker]] = cell
        bench.last[way, worker] += 1
        ends_ns[cell] = 0  # whoever needs it while it waits gives up
        bench.place[worker] += 1
        count += 1
    now_ns, group = bench.free_ns[worker], world.group[worker]
    for way in range(2):
        while bench.first[way, worker] < bench.last[way, worker]:
            if world.alone[worker] == 0 and bench.link_ns[way, group] > now_ns:
                break
            cell = bench.waiting[way, worker, bench.first[way, worker]]
            bench.first[way, worker] += 1
            end_ns = max(now_ns, bench.link_ns[way, group])
            end_ns += world.copy_ns[cell // world.sizes[1]]
            bench.link_ns[way, group] = end_ns
            if way == 0:
                bench.out_ns[cell] = end_ns
            else:
                bench.in_ns[cell] = end_ns
            _note(bench, worker, cell * 8 + (OUT if way == 0 else IN))
    return count


@inlined
def _has_begun(bench: Bench, worker: int, cell: int, kind: int) -> bool:
    """Whether the copy that an action waits for has begun."""
    way = 0 if kind == FREE else 1
    begun = True
    for number in range(bench.first[way, worker], bench.last[way, worker]):
        if bench.waiting[way, worker, number] == cell:
            begun = False
    return begun


@inlined
def _note(bench: Bench, worker: int, code: int) -> None:
    bench.played[worker, bench.played_lengths[worker]] = code
    bench.spot[code // 8, code % 8] = bench.played_lengths[worker]
    bench.played_lengths[worker] += 1
