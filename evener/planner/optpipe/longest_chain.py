"""Why a step takes as long as it does: what would have to be earlier for it to be shorter."""

from evener.compiled import compiled, inlined
from evener.planner.optpipe.bench import Bench
from evener.planner.optpipe.orders import Orders
from evener.planner.optpipe.place_copies import duration_ns
from evener.planner.optpipe.world import (
    BACKWARD,
    FORWARD,
    FREE,
    IN,
    OUT,
    WEIGHT,
    World,
)


@compiled
def trace(world: World, orders: Orders, bench: Bench) -> None:
    """Write the longest chain of what was played last, to its end, into ``bench.chain``."""
    worker = 0
    for other in range(1, world.sizes[0]):
        own_ns = bench.free_ns[worker] + world.tail_ns[worker]
        if bench.free_ns[other] + world.tail_ns[other] > own_ns:
            worker = other
    spot, count = bench.played_lengths[worker] - 1, 0
    while spot >= 0 and count < len(bench.chain):
        code = bench.played[worker, spot]
        cell, kind = code // 8, code % 8
        if kind in (OUT, IN):
            spot -= 1
            continue
        start_ns = bench.end_ns[cell, kind]
        if kind <= WEIGHT:
            bench.chain[count, 0], bench.chain[count, 1] = worker, bench.at[cell, kind]
            count += 1
            start_ns -= duration_ns(world, orders, cell, kind)
        before = _before(bench, worker, spot)
        if before < 0 and start_ns == 0:
            break
        if before >= 0:
            earlier = bench.played[worker, before]
            if bench.end_ns[earlier // 8, earlier % 8] == start_ns:
                spot = before
                continue
        worker, spot = _awaited(world, bench, worker, code, start_ns)
    bench.num_chain[0] = count


@inlined
def _before(bench: Bench, worker: int, spot: int) -> int:
    """Where the compute action in front of one stands, or -1."""
    spot -= 1
    while spot >= 0 and bench.played[worker, spot] % 8 in (OUT, IN):
        spot -= 1
    return spot


@inlined
def _awaited(world: World, bench: Bench, worker: int, code: int, start_ns: int) -> tuple[int, int]:
    """Worker and place of what an action has waited for, its own worker left aside."""
    num_microbatches = world.sizes[1]
    cell, kind = code // 8, code % 8
    stage = cell // num_microbatches
    if kind == FREE:
        spot = bench.spot[cell, OUT]
    elif kind == FORWARD and stage > 0:
        worker = world.worker[stage - 1]
        spot = bench.spot[cell - num_microbatches, FORWARD]
    elif kind == BACKWARD and bench.away[cell] == 2 and bench.in_ns[cell] == start_ns:
        spot = bench.spot[cell, IN]
    elif kind == BACKWARD and stage + 1 < len(world.worker):
        worker = world.worker[stage + 1]
        spot = bench.spot[cell + num_microbatches, BACKWARD]
    else:
        spot = bench.spot[cell, FORWARD] if kind == BACKWARD else -1
    return worker, spot
