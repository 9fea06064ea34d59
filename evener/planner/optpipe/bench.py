"""Room in which orders are played."""

from typing import NamedTuple

import numpy as np

from evener.planner.optpipe.orders import Orders
from evener.planner.optpipe.world import Int, World


class Bench(NamedTuple):
    """All int64.

    at: [cell, F R I W], places. level: [place], bytes. back: [cell], and back_at: [cell], which
    come back, and at which place. away: [cell], 0 stays, 1 leaves, 2 has left. gone: [cell], in the
    order in which they leave. draft: [place].
    stale: [worker], 1 where the order or the modes are others than those of ``lists``.
    lists: [worker, place], cell * 8 + kind, with copies; lengths: [worker]. work_ns: [worker], of
    all of it. played, played_lengths: as lists and lengths, with copies where they begin.
    ready_ns: [F or I, cell]. out_ns, in_ns: [cell], ends of copies. free_ns, left_ns, next_ns,
    place, fresh: [worker]. link_ns: [out or in, group]. waiting: [out or in, worker, cell], and
    first, last: [out or in, worker], copies that wait for a shared link.
    end_ns, spot: [cell, kind], ends of compute actions, and where ``played`` has an action.
    chain: [action, (worker, place)], the longest chain, from the end to the begin; num_chain: [1].
    """

    at: Int
    level: Int
    back: Int
    back_at: Int
    away: Int
    gone: Int
    draft: Int
    stale: Int
    lists: Int
    lengths: Int
    work_ns: Int
    left_ns: Int
    played: Int
    played_lengths: Int
    ready_ns: Int
    out_ns: Int
    in_ns: Int
    free_ns: Int
    next_ns: Int
    place: Int
    fresh: Int
    link_ns: Int
    waiting: Int
    first: Int
    last: Int
    end_ns: Int
    spot: Int
    chain: Int
    num_chain: Int


def new_bench(world: World, orders: Orders) -> Bench:
    """Room for orders of this size."""
    num_workers, num_cells = int(world.sizes[0]), len(orders.mode)
    num_places = orders.action.shape[1]

    def room(*shape: int) -> Int:
        return np.zeros(shape, dtype=np.int64)

    # A cell has F, R, I, W and at most three copies.
    return Bench(
        at=room(num_cells, 4),
        level=room(num_places),
        back=room(num_cells),
        back_at=room(num_cells),
        away=room(num_cells),
        gone=room(num_cells),
        draft=room(2 * num_places),
        stale=room(num_workers),
        lists=room(num_workers, 2 * num_places),
        lengths=room(num_workers),
        work_ns=room(num_workers),
        left_ns=room(num_workers),
        played=room(num_workers, 2 * num_places),
        played_lengths=room(num_workers),
        ready_ns=room(2, num_cells),
        out_ns=room(num_cells),
        in_ns=room(num_cells),
        free_ns=room(num_workers),
        next_ns=room(num_workers),
        place=room(num_workers),
        fresh=room(num_workers),
        link_ns=room(2, num_workers),
        waiting=room(2, num_workers, num_cells),
        first=room(2, num_workers),
        last=room(2, num_workers),
        end_ns=room(num_cells, 7),
        spot=room(num_cells, 7),
        chain=room(2 * num_workers * num_places, 2),
        num_chain=room(1),
    )
