"""The point of the search: what every worker computes in which order, and what becomes of cells."""

from typing import NamedTuple

import numpy as np

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.planner.optpipe.world import (
    AGAIN,
    BACKWARD,
    FORWARD,
    KEEP,
    WEIGHT,
    Int,
    World,
)

NAME = "optpipe"
"""The name of schedules that were searched."""

LEAD = 5
"""How long before its use a reload is to begin at first, in quarters of its time."""

_KINDS = (Kind.F, Kind.R, Kind.I, Kind.W, Kind.OFFLOAD, Kind.FREE, Kind.RELOAD)
_SLOTS = {
    Kind.F: (FORWARD,),
    Kind.B: (AGAIN, BACKWARD, WEIGHT),
    Kind.I: (AGAIN, BACKWARD),
    Kind.W: (WEIGHT,),
}


class Orders(NamedTuple):
    """All int64. A cell is stage x microbatches + microbatch.

    action: [worker, place], cell * 4 + kind: F, R, I and W of every cell, whether or not it is
    recomputed and its backward is split; what is not done takes no time and stands anywhere.
    length: [worker].
    mode: [cell], KEEP, OFFLOAD or RECOMPUTE. whole: [cell], 1 if its backward is not split.
    lead: [cell], how long before its use a reload should begin, in quarters of its time.
    """

    action: Int
    length: Int
    mode: Int
    whole: Int
    lead: Int


def orders_of(schedule: Schedule) -> Orders:
    """The order of a compute-only schedule without R that runs a chain of stages."""
    num_cells = schedule.num_stages * schedule.num_microbatches
    whole = np.zeros(num_cells, dtype=np.int64)
    rows = []
    for actions in schedule.workers:
        row = []
        for action in actions:
            assert action.microbatch is not None, "the schedule is compute-only"
            cell = action.stage * schedule.num_microbatches + action.microbatch
            whole[cell] |= action.kind is Kind.B
            row += [4 * cell + slot for slot in _SLOTS[action.kind]]
        rows.append(row)
    table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for worker, row in enumerate(rows):
        table[worker, : len(row)] = row
    return Orders(
        action=table,
        length=np.array(list(map(len, rows)), dtype=np.int64),
        mode=np.full(num_cells, KEEP, dtype=np.int64),
        whole=whole,
        lead=np.full(num_cells, LEAD, dtype=np.int64),
    )


def copied(orders: Orders) -> Orders:
    """The same in memory of its own."""
    return Orders(*(array.copy() for array in orders))


def schedule_of(world: World, orders: Orders, lists: Int, lengths: Int) -> Schedule:
    """What was played, as a schedule.

    lists: [worker, place], cell * 8 + kind, as ``play`` writes it down. lengths: [worker].
    """
    num_workers, num_microbatches = world.sizes.tolist()
    workers = []
    for worker in range(num_workers):
        actions = []
        for code in lists[worker, : lengths[worker]].tolist():
            cell, kind = divmod(code, 8)
            name = Kind.B if kind == BACKWARD and orders.whole[cell] else _KINDS[kind]
            actions.append(Action(cell // num_microbatches, name, cell % num_microbatches))
        workers.append(tuple(actions))
    return Schedule(NAME, len(world.worker), num_microbatches, tuple(workers))
