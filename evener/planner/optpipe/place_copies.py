"""Where copies stand in the lists: a function of the order and of memory, of no time.

AdaOffload's rule (OptPipe, arXiv 2510.05186): memory is filled before anything leaves it.  A cell
begins to leave right behind its forward, but its memory is claimed (FREE) only when something else
needs the room; if nothing does until it would have to come back, it stays.  It begins to come back
as early as its lead says, or as memory allows.
"""

from evener.compiled import compiled, inlined
from evener.planner.optpipe.bench import Bench
from evener.planner.optpipe.orders import Orders
from evener.planner.optpipe.world import (
    AGAIN,
    BACKWARD,
    FORWARD,
    FREE,
    IN,
    OFFLOAD,
    OUT,
    RECOMPUTE,
    WEIGHT,
    World,
)


@inlined
def changes(world: World, orders: Orders, cell: int, kind: int) -> tuple[int, int]:
    """Bytes that an action takes when it is issued and when it ends, reloads left out."""
    stage = cell // world.sizes[1]
    mode = orders.mode[cell]
    if kind == FORWARD:
        if mode == RECOMPUTE:
            return world.checkpoint_bytes[stage], 0
        return world.activation_bytes[stage], 0
    if kind == AGAIN:
        if mode == RECOMPUTE:
            return world.activation_bytes[stage], -world.checkpoint_bytes[stage]
        return 0, 0
    split_bytes = 0 if orders.whole[cell] == 1 else world.weight_bytes[stage]
    if kind == BACKWARD:
        return 0, split_bytes - world.activation_bytes[stage]
    return 0, -split_bytes


@inlined
def is_idle(orders: Orders, cell: int, kind: int) -> bool:
    """Whether a place in the order stands for nothing that is done."""
    if kind == AGAIN:
        return bool(orders.mode[cell] != RECOMPUTE)
    return bool(kind == WEIGHT and orders.whole[cell] == 1)


@inlined
def duration_ns(world: World, orders: Orders, cell: int, kind: int) -> int:
    """Time of a compute action."""
    stage = cell // world.sizes[1]
    if is_idle(orders, cell, kind):
        return 0
    if kind == BACKWARD and orders.whole[cell] == 1:
        return int(world.whole_ns[stage])
    return int(world.time_ns[stage, kind])


@compiled
def least_levels(world: World, orders: Orders, worker: int, bench: Bench) -> int:
    """Fill ``bench.level``: bytes at each action if copies took no time; first place over the cap.

    Returns the length of the list if there is none. ``bench.at`` gets the places of all actions.
    """
    held_bytes = 0
    over = orders.length[worker]
    for place in range(orders.length[worker]):
        code = orders.action[worker, place]
        cell, kind = code // 4, code % 4
        bench.at[cell, kind] = place
        first_bytes, last_bytes = changes(world, orders, cell, kind)
        if orders.mode[cell] == OFFLOAD:
            size_bytes = world.activation_bytes[cell // world.sizes[1]]
            if kind == FORWARD:
                last_bytes -= size_bytes
            elif kind == BACKWARD:
                first_bytes += size_bytes
        held_bytes += first_bytes
        bench.level[place] = max(held_bytes, held_bytes + last_bytes)
        held_bytes += last_bytes
        if bench.level[place] > world.cap_bytes[worker]:
            over = min(over, place)
    return int(over)


@compiled
def _place_reloads(world: World, orders: Orders, worker: int, bench: Bench) -> int:
    """Fill ``bench.back`` (cells in the order in which they come back) and ``bench.back_at``."""
    count, earliest = 0, 0
    for place in range(orders.length[worker]):
        code = orders.action[worker, place]
        cell = code // 4
        if code % 4 != BACKWARD or orders.mode[cell] != OFFLOAD:
            continue
        stage = cell // world.sizes[1]
        size_bytes = world.activation_bytes[stage]
        wanted_ns = world.copy_ns[stage] * orders.lead[cell] // 4
        begin, elapsed_ns = place, 0
        stop = max(earliest, bench.at[cell, FORWARD] + 1)
        while begin > stop and elapsed_ns < wanted_ns:
            if bench.level[begin - 1] + size_bytes > world.cap_bytes[worker]:
                break
            begin -= 1
            bench.level[begin] += size_bytes
            before = orders.action[worker, begin]
            elapsed_ns += duration_ns(world, orders, before // 4, before % 4)
        bench.back[count], bench.back_at[cell] = cell, begin
        count += 1
        earliest = begin
    return count


@compiled
def place_copies(world: World, orders: Orders, bench: Bench) -> bool:
    """Write the lists of stale workers with their copies; False if a memory is too small."""
    for worker in range(world.sizes[0]):
        if bench.stale[worker] == 0:
            continue
        if least_levels(world, orders, worker, bench) < orders.length[worker]:
            return False
        num_back = _place_reloads(world, orders, worker, bench)
        if not _write(world, orders, worker, bench, num_back):
            return False
        bench.stale[worker] = 0
    return True


@compiled
def _write(world: World, orders: Orders, worker: int, bench: Bench, num_back: int) -> bool:
    """Let reloads and frees stand where memory asks for them; False if it is too small."""
    cap_bytes, held_bytes, work_ns = world.cap_bytes[worker], 0, 0
    # Cells that left, in order; those from ``head`` on still hold their memory.
    count, head, tail, next_back = 0, 0, 0, 0
    for place in range(orders.length[worker]):
        code = orders.action[worker, place]
        cell, kind = code // 4, code % 4
        returning = True
        while returning:
            returning = next_back < num_back and bench.back_at[bench.back[next_back]] == place
            if returning:
                other = bench.back[next_back]
                next_back += 1
                if bench.away[other] != 2:
                    bench.away[other] = 0
                    continue
                first_bytes, last_bytes = world.activation_bytes[other // world.sizes[1]], 0
            else:
                other = cell
                first_bytes, last_bytes = changes(world, orders, cell, kind)
            while held_bytes + max(first_bytes, first_bytes + last_bytes) > cap_bytes:
                while head < tail and bench.away[bench.gone[head]] != 1:
                    head += 1
                if head == tail:
                    return False
                leaving = bench.gone[head]
                bench.away[leaving] = 2
                held_bytes -= world.activation_bytes[leaving // world.sizes[1]]
                bench.draft[count] = leaving * 8 + FREE
                count += 1
            held_bytes += first_bytes + last_bytes
            if returning or not is_idle(orders, cell, kind):
                bench.draft[count] = other * 8 + (IN if returning else kind)
                count += 1
        work_ns += duration_ns(world, orders, cell, kind)
        if kind == FORWARD and orders.mode[cell] == OFFLOAD:
            bench.away[cell] = 1
            bench.gone[tail] = cell
            tail += 1
    bench.work_ns[worker] = work_ns
    _add_copies_out(orders, worker, bench, count)
    return True


@compiled
def _add_copies_out(orders: Orders, worker: int, bench: Bench, count: int) -> None:
    """Write the draft, and behind the forward of what has left its way out."""
    length = 0
    for number in range(count):
        code = bench.draft[number]
        bench.lists[worker, length] = code
        length += 1
        cell = code // 8
        if code % 8 == FORWARD and orders.mode[cell] == OFFLOAD and bench.away[cell] == 2:
            bench.lists[worker, length] = cell * 8 + OUT
            length += 1
    bench.lengths[worker] = length
