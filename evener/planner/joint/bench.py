"""Where the judge works: flat tables that are filled anew for every state.

Stages stand worker by worker, in rows called ranks, so that what a worker chooses from lies side by
side.  F and I of a rank are two slots, 2 * rank + kind.  There are few arrays, each passed on its
own, as numba counts references to every array that it takes out of a tuple.
"""

from typing import NamedTuple

import numpy as np

from evener.compiled import uncounted
from evener.planner.joint.state import State
from evener.planner.joint.world import BACKWARD, FORWARD, NEVER, WEIGHT, WHOLE, Int, World

NOBODY = -1
STALE = -2

# Columns of a slot's row.
TIME_NS = 0
DONE = 1  # actions issued
KNOWN = 2  # of how many it is known when they have what they need
TARGET = 3  # the slot that can go on because of it, or NOBODY
TOLD = 4  # the worker of that
LINK = 5  # to it, or NOBODY if it is the own one
WIRE_NS, LATENCY_NS = 6, 7
WAY_NS = 8  # from its end, the least until the microbatch is through
CODE = 9  # 3 * stage + kind
_NUM_SLOT_COLUMNS = 10

# Columns of a rank's row.
WEIGHT_NS = 0  # duration of W
WISH_NS = 1  # when its next W is wanted
PENDING = 2  # of how many W the I has run
SPLIT = 3  # 1 if its backward is I and W
HELD_BYTES = 4
KEPT_BYTES, REST_BYTES = 5, 6  # of a microbatch: from the forward on, from the input gradient on
STAGE = 7
_NUM_RANK_COLUMNS = 8

# Columns of a worker's row.
FREE_NS = 0  # end of its last action
LEFT_NS = 1  # work that it has left
CHAIN_NS = 2  # the same without W, and the way from its last I to the end
WAS = 3  # kind of its last action
NEXT = 4  # slot of what it does next as far as is known, or the rank of a W
NEXT_KIND = 5  # of that, or STALE if it has to choose first
LATEST_NS = 6  # what arrives later does not change its choice
FIRST = 7  # its first rank; the row after the last worker has the number of all
TURN_NS = 8
WAIT_NS = 9  # for F or I instead of F or I; instead of W
ROOM_BYTES = 11  # its cap without what it always holds
REACHED_NS = 12  # the least time after which the first microbatch comes to it
_NUM_WORKER_COLUMNS = 13


class Bench(NamedTuple):
    """All int64.

    slots, ranks, workers: [.., column]. rank: [stage].
    ready_ns: [slot], when the next action has what it needs, NEVER if not yet known; open_ns: the
    same, NEVER too if there is no memory for it. wanted_ns: [slot]. weight_ns: [rank], when the
    next W is wanted, NEVER if there is none. next_ns: [worker], when it acts next.
    queue_ns: [slot, microbatch], as far as known. link_ns: [link], when it is free.
    codes: [action], 3 * stage + kind in the order in which they were issued.
    rooms: [4, worker], see ``balance``.
    spent: [1], actions issued for all states so far, and one for each stage of each state.
    """

    slots: Int
    ranks: Int
    workers: Int
    rank: Int
    ready_ns: Int
    open_ns: Int
    wanted_ns: Int
    weight_ns: Int
    next_ns: Int
    queue_ns: Int
    link_ns: Int
    codes: Int
    rooms: Int
    spent: Int


def new_bench(world: World, most_stages: int) -> Bench:
    """Room to judge states of at most so many stages."""
    num_workers, num_microbatches = int(world.sizes[0]), int(world.sizes[1])

    def room(*shape: int) -> Int:
        return np.zeros(shape, dtype=np.int64)

    return Bench(
        slots=room(2 * most_stages, _NUM_SLOT_COLUMNS),
        ranks=room(most_stages, _NUM_RANK_COLUMNS),
        workers=room(num_workers + 1, _NUM_WORKER_COLUMNS),
        rank=room(most_stages),
        ready_ns=room(2 * most_stages),
        open_ns=room(2 * most_stages),
        wanted_ns=room(2 * most_stages),
        weight_ns=room(most_stages),
        next_ns=room(num_workers),
        queue_ns=room(2 * most_stages, num_microbatches),
        link_ns=room(num_workers * num_workers),
        codes=room(3 * most_stages * num_microbatches),
        rooms=room(4, num_workers),
        spent=room(1),
    )


@uncounted
def prepare(world: World, state: State, bench: Bench) -> None:
    """Empty the bench and lay the stages on it."""
    workers, num_workers, count = bench.workers, world.sizes[0], state.num_stages[0]
    bench.link_ns[:] = 0
    workers[:] = 0
    for worker in range(num_workers):
        workers[worker, TURN_NS] = state.turn_ns[worker]
        workers[worker, WAIT_NS] = state.wait_ns[0, worker]
        workers[worker, WAIT_NS + 1] = state.wait_ns[1, worker]
        workers[worker, NEXT_KIND] = STALE
    for stage in range(count):
        workers[state.worker[stage] + 1, FIRST] += 1
    for worker in range(num_workers):
        workers[worker + 1, FIRST] += workers[worker, FIRST]
    for stage in range(count - 1, -1, -1):
        worker = state.worker[stage]
        workers[worker + 1, FIRST] -= 1
        bench.rank[stage] = workers[worker + 1, FIRST]
    # Each worker's begin now stands in the row behind its own.
    for worker in range(num_workers):
        workers[worker, FIRST] = workers[worker + 1, FIRST]
    workers[num_workers, FIRST] = count
    for stage in range(count):
        _price(world, state, bench, stage)
    _connect(world, state, bench)
    first = 2 * bench.rank[0]
    bench.slots[first, KNOWN] = world.sizes[1]
    bench.ready_ns[first] = 0
    bench.queue_ns[first] = 0


@uncounted
def _price(world: World, state: State, bench: Bench, stage: int) -> None:
    """The rows of one stage, but for its neighbours."""
    rank, worker, until_ns = bench.rank[stage], state.worker[stage], world.until_ns
    begin, end, last = state.cut[stage], state.cut[stage + 1], world.sizes[2]
    split, overhead_ns = 1 - state.whole[stage], world.overhead_ns[0]
    weight_ns = 0
    if split == 1:
        weight_ns = until_ns[WEIGHT, worker, end] - until_ns[WEIGHT, worker, begin] + overhead_ns
    row = bench.ranks[rank]
    row[WEIGHT_NS], row[SPLIT], row[STAGE] = weight_ns, split, stage
    row[PENDING] = row[HELD_BYTES] = 0
    bench.weight_ns[rank] = NEVER
    way_ns = until_ns[FORWARD, worker, last] + until_ns[BACKWARD, worker, last]
    way_ns -= until_ns[BACKWARD, worker, end]
    row[WISH_NS] = way_ns + state.shift_ns[WEIGHT, stage]
    work_ns = 0
    for kind in range(2):
        source = WHOLE if kind == BACKWARD and split == 0 else kind
        time_ns = until_ns[source, worker, end] - until_ns[source, worker, begin] + overhead_ns
        slot = 2 * rank + kind
        row = bench.slots[slot]
        row[TIME_NS], row[DONE], row[KNOWN] = time_ns, 0, 0
        row[CODE] = 3 * stage + kind
        bench.ready_ns[slot] = NEVER
        wanted_ns = way_ns if kind == BACKWARD else until_ns[FORWARD, worker, begin]
        bench.wanted_ns[slot] = wanted_ns + state.shift_ns[kind, stage]
        work_ns += time_ns
    row = bench.workers[worker]
    num_microbatches = world.sizes[1]
    step_ns = world.step_ns[end] - world.step_ns[begin] + overhead_ns
    row[LEFT_NS] += (work_ns + weight_ns) * num_microbatches + step_ns
    row[CHAIN_NS] += work_ns * num_microbatches


@uncounted
def _connect(world: World, state: State, bench: Bench) -> None:
    """Who tells whom, and how long a microbatch still is on its way.

    On each worker the lowest stage has the last I, so its way is that of the worker.
    """
    slots, rank, worker = bench.slots, bench.rank, state.worker
    last = state.num_stages[0] - 1
    way_ns = 0
    for stage in range(last + 1):
        row = slots[2 * rank[stage] + BACKWARD]
        if stage == 0:
            row[TARGET], row[LINK] = NOBODY, NOBODY
        else:
            _tell(world, state, row, stage, stage - 1, BACKWARD)
            row[TARGET] = 2 * rank[stage - 1] + BACKWARD
            way_ns += row[WIRE_NS] + row[LATENCY_NS]
        row[WAY_NS] = way_ns
        way_ns += row[TIME_NS]
    for stage in range(last, -1, -1):
        row = slots[2 * rank[stage] + FORWARD]
        if stage == last:
            row[TARGET], row[LINK], row[TOLD] = 2 * rank[stage] + BACKWARD, NOBODY, worker[stage]
        else:
            _tell(world, state, row, stage, stage + 1, FORWARD)
            row[TARGET] = 2 * rank[stage + 1] + FORWARD
            way_ns += row[WIRE_NS] + row[LATENCY_NS]
        row[WAY_NS] = way_ns
        way_ns += row[TIME_NS]
    workers, through_ns = bench.workers, way_ns
    for each in range(world.sizes[0]):
        first = workers[each, FIRST]
        if first < workers[each + 1, FIRST]:
            row = slots[2 * first + FORWARD]
            workers[each, REACHED_NS] = through_ns - row[WAY_NS] - row[TIME_NS]
            workers[each, CHAIN_NS] += slots[2 * first + BACKWARD, WAY_NS]


@uncounted
def _tell(world: World, state: State, row: Int, source: int, target: int, kind: int) -> None:
    """The link from a stage to its neighbour."""
    worker, told = state.worker[source], state.worker[target]
    row[TOLD], row[LINK] = told, NOBODY
    row[WIRE_NS] = row[LATENCY_NS] = 0
    if worker != told:
        row[LINK] = worker * world.sizes[0] + told
        row[WIRE_NS] = world.wire_ns[kind, worker, told, state.cut[max(source, target)]]
        row[LATENCY_NS] = world.latency_ns[worker, told]


@uncounted
def has_room(world: World, state: State, bench: Bench) -> bool:
    """Fill what is held always and per microbatch; False if one microbatch is too much."""
    ranks, workers = bench.ranks, bench.workers
    again = world.sizes[3]
    for worker in range(world.sizes[0]):
        work_bytes, again_bytes, one_bytes = 0, 0, 0
        room_bytes = world.cap_bytes[worker]
        for rank in range(workers[worker, FIRST], workers[worker + 1, FIRST]):
            row = ranks[rank]
            begin, end = state.cut[row[STAGE]], state.cut[row[STAGE] + 1]
            kept_bytes = world.activation_bytes[end] - world.activation_bytes[begin]
            room_bytes -= world.state_bytes[end] - world.state_bytes[begin]
            for layer in range(begin, end):
                work_bytes = max(work_bytes, world.work_bytes[layer])
            if again == 1:
                again_bytes = max(again_bytes, kept_bytes)
                kept_bytes = world.input_bytes[begin]
            rest_bytes = (world.weight_bytes[end] - world.weight_bytes[begin]) * row[SPLIT]
            row[KEPT_BYTES] = max(kept_bytes, rest_bytes)
            row[REST_BYTES] = rest_bytes
            one_bytes += row[KEPT_BYTES]
        workers[worker, ROOM_BYTES] = room_bytes - work_bytes - again_bytes
        if one_bytes > workers[worker, ROOM_BYTES]:
            return False
    return True
