"""The judge of the joint search: a state becomes an order of actions and the time that it takes.

A greedy list scheduler and the simulator in one pass, over flat arrays that are used again for
every state.  Times are those of ``evener.sim``: messages occupy their direction of a link one after
another, a worker steps its optimizer when its last action has ended.  What workers do together at
the end of a step (reductions, the exchange of the gradients' norm) is left to the simulator.

What is known of a stage, and of a worker, is a row of a table: few arrays, each passed on its own,
as numba counts references to every array that it takes out of a tuple.
"""

from typing import NamedTuple

import numpy as np

from evener.compiled import compiled, inlined
from evener.planner.joint.state import State
from evener.planner.joint.world import BACKWARD, FORWARD, NEVER, WEIGHT, WHOLE, Int, World

NOBODY = -1

# Columns of a stage's row; those that come in threes or pairs are indexed by kind.
TIME_NS = 0  # F I W: duration
WANTED_NS = 3  # F I W: when the next one is wanted
READY_NS = 6  # F I: when the next one has what it needs, NEVER if not yet known
DONE = 8  # F I W: actions issued
KNOWN = 11  # F I: of how many it is known when they have what they need
WORKER = 13
CUT = 14  # its first layer
HELD_BYTES = 15
CELL_BYTES = 16  # F: kept from the forward on, I: from the input gradient on
SPLIT = 18  # 1 if its backward is I and W
TARGET = 19  # F I: the stage that can go on because of it, or NOBODY
LANE = 21  # not of this stage: that of this rank when all stand worker by worker
_NUM_STAGE_COLUMNS = 22

# Columns of a worker's row.
FREE_NS = 0  # end of its last action
LEFT_NS = 1  # work that it has left
WAS = 2  # kind of its last action
NEXT_NS, NEXT_STAGE, NEXT_KIND = 3, 4, 5  # what it does next as far as is known
FIRST = 6  # the rank of its first stage, see LANE; the row after the last worker has their number
ROOM_BYTES = 7  # its cap without what it always holds
TURN_NS = 8
WAIT_NS = 9  # for F or I instead of F or I; instead of W
_NUM_WORKER_COLUMNS = 11

# Columns of an action's row.
STAGE, KIND, START_NS = 0, 1, 2


class Bench(NamedTuple):
    """Where the judge works; all int64.

    stages: [stage, column]. workers: [worker + 1, column].
    ready_ns: [F or I, stage, microbatch], as far as known. link_ns: [source, target], when a link
    is free. actions: [action, column], in the order in which they were issued.
    """

    stages: Int
    workers: Int
    ready_ns: Int
    link_ns: Int
    actions: Int


def new_bench(world: World, most_stages: int) -> Bench:
    """Room to judge states of at most so many stages."""
    num_workers, num_microbatches = int(world.sizes[0]), int(world.sizes[1])

    def room(*shape: int) -> Int:
        return np.zeros(shape, dtype=np.int64)

    return Bench(
        stages=room(most_stages, _NUM_STAGE_COLUMNS),
        workers=room(num_workers + 1, _NUM_WORKER_COLUMNS),
        ready_ns=room(2, most_stages, num_microbatches),
        link_ns=room(num_workers, num_workers),
        actions=room(3 * most_stages * num_microbatches, 3),
    )


@compiled
def judge(world: World, state: State, bench: Bench, limit_ns: int) -> int:
    """Time of a step, or NEVER if it is more than the limit or memory is too small.

    ``bench`` keeps the order of actions.
    """
    stages, workers = bench.stages, bench.workers
    _prepare(world, state, bench)
    limited = world.cap_bytes[0] < NEVER
    if limited and not _has_room(world, bench, state.num_stages[0]):
        return NEVER
    num_workers, num_microbatches = world.sizes[0], world.sizes[1]
    # A forward is looked at closely only where memory is limited.
    count = num_microbatches if limited else 0
    ready_ns, link_ns, pace_ns = bench.ready_ns, bench.link_ns, state.pace_ns
    wire_ns, latency_ns, actions = world.wire_ns, world.latency_ns, bench.actions
    for worker in range(num_workers):
        if workers[worker, LEFT_NS] > limit_ns:
            return NEVER
        _choose(stages, workers, worker, count)
    for action in range(_num_actions(stages, state.num_stages[0], num_microbatches)):
        worker = _soonest(workers, num_workers)
        now_ns = workers[worker, NEXT_NS]
        if now_ns >= NEVER:
            return NEVER
        stage, kind = workers[worker, NEXT_STAGE], workers[worker, NEXT_KIND]
        actions[action, STAGE] = stage
        actions[action, KIND] = kind
        actions[action, START_NS] = now_ns
        end_ns = _issue(stages, workers, ready_ns, pace_ns, worker)
        if end_ns + workers[worker, LEFT_NS] > limit_ns:
            return NEVER
        told = worker
        if kind != WEIGHT and stages[stage, TARGET + kind] != NOBODY:
            told = _hand_on(stages, ready_ns, link_ns, wire_ns, latency_ns, stage, kind, end_ns)
        _choose(stages, workers, worker, count)
        if told != worker:
            _choose(stages, workers, told, count)
    end_ns = 0
    for worker in range(num_workers):
        end_ns = max(end_ns, workers[worker, FREE_NS] + workers[worker, LEFT_NS])
    return end_ns


@compiled
def _num_actions(stages: Int, num_stages: int, num_microbatches: int) -> int:
    per_microbatch = 2 * num_stages
    for stage in range(num_stages):
        per_microbatch += stages[stage, SPLIT]
    return per_microbatch * num_microbatches


@inlined
def _soonest(workers: Int, num_workers: int) -> int:
    """The worker that acts next; of several the lowest."""
    worker = 0
    for other in range(1, num_workers):
        if workers[other, NEXT_NS] < workers[worker, NEXT_NS]:
            worker = other
    return worker


@compiled
def _prepare(world: World, state: State, bench: Bench) -> None:
    """Price the stages and empty the bench."""
    stages, workers = bench.stages, bench.workers
    until_ns, cuts = world.until_ns, state.cut
    count, num_microbatches = state.num_stages[0], world.sizes[1]
    num_workers, num_layers = world.sizes[0], world.sizes[2]
    overhead_ns = world.overhead_ns[0]
    bench.link_ns[:] = 0
    workers[:] = 0
    for worker in range(num_workers):
        workers[worker, TURN_NS] = state.turn_ns[worker]
        workers[worker, WAIT_NS] = state.wait_ns[0, worker]
        workers[worker, WAIT_NS + 1] = state.wait_ns[1, worker]
    for stage in range(count):
        row, worker = stages[stage], state.worker[stage]
        row[:] = 0
        row[WORKER] = worker
        row[SPLIT] = 1 - state.whole[stage]
        begin, end = cuts[stage], cuts[stage + 1]
        row[CUT] = begin
        row[TARGET] = min(stage + 1, count - 1)
        row[TARGET + BACKWARD] = stage - 1 if stage > 0 else NOBODY
        backward = BACKWARD if row[SPLIT] == 1 else WHOLE
        row[TIME_NS] = (
            until_ns[FORWARD, worker, end] - until_ns[FORWARD, worker, begin] + overhead_ns
        )
        row[TIME_NS + BACKWARD] = (
            until_ns[backward, worker, end] - until_ns[backward, worker, begin] + overhead_ns
        )
        if row[SPLIT] == 1:
            row[TIME_NS + WEIGHT] = (
                until_ns[WEIGHT, worker, end] - until_ns[WEIGHT, worker, begin] + overhead_ns
            )
        work_ns = row[TIME_NS] + row[TIME_NS + BACKWARD] + row[TIME_NS + WEIGHT]
        step_ns = world.step_ns[end] - world.step_ns[begin] + overhead_ns
        workers[worker, LEFT_NS] += work_ns * num_microbatches + step_ns
        way_ns = until_ns[FORWARD, worker, num_layers] + until_ns[BACKWARD, worker, num_layers]
        way_ns -= until_ns[BACKWARD, worker, end]
        row[WANTED_NS] = until_ns[FORWARD, worker, begin] + state.shift_ns[FORWARD, stage]
        row[WANTED_NS + BACKWARD] = way_ns + state.shift_ns[BACKWARD, stage]
        row[WANTED_NS + WEIGHT] = way_ns + state.shift_ns[WEIGHT, stage]
        row[READY_NS] = row[READY_NS + 1] = NEVER
        workers[worker + 1, FIRST] += 1
    for worker in range(num_workers):
        workers[worker + 1, FIRST] += workers[worker, FIRST]
    for stage in range(count - 1, -1, -1):
        worker = state.worker[stage]
        workers[worker + 1, FIRST] -= 1
        stages[workers[worker + 1, FIRST], LANE] = stage
    # Each worker's begin now stands in the row behind its own.
    for worker in range(num_workers):
        workers[worker, FIRST] = workers[worker + 1, FIRST]
    workers[num_workers, FIRST] = count
    stages[0, KNOWN] = num_microbatches
    stages[0, READY_NS] = 0
    bench.ready_ns[FORWARD, 0] = 0


@compiled
def _has_room(world: World, bench: Bench, num_stages: int) -> bool:
    """Fill what is held always and per microbatch; False if one microbatch is too much."""
    stages, workers = bench.stages, bench.workers
    again = world.sizes[3]
    for worker in range(world.sizes[0]):
        work_bytes, again_bytes, one_bytes = 0, 0, 0
        room_bytes = world.cap_bytes[worker]
        for at in range(workers[worker, FIRST], workers[worker + 1, FIRST]):
            stage = stages[at, LANE]
            row, begin = stages[stage], stages[stage, CUT]
            end = stages[stage + 1, CUT] if stage + 1 < num_stages else world.sizes[2]
            kept_bytes = world.activation_bytes[end] - world.activation_bytes[begin]
            room_bytes -= world.state_bytes[end] - world.state_bytes[begin]
            for layer in range(begin, end):
                work_bytes = max(work_bytes, world.work_bytes[layer])
            if again == 1:
                again_bytes = max(again_bytes, kept_bytes)
                kept_bytes = world.input_bytes[begin]
            weight_bytes = (world.weight_bytes[end] - world.weight_bytes[begin]) * row[SPLIT]
            row[CELL_BYTES] = max(kept_bytes, weight_bytes)
            row[CELL_BYTES + 1] = weight_bytes
            one_bytes += row[CELL_BYTES]
        workers[worker, ROOM_BYTES] = room_bytes - work_bytes - again_bytes
        if one_bytes > workers[worker, ROOM_BYTES]:
            return False
    return True


@inlined
def _issue(stages: Int, workers: Int, ready_ns: Int, pace_ns: Int, worker: int) -> int:
    """Let the worker do what it chose; returns the end of that."""
    stage, kind = workers[worker, NEXT_STAGE], workers[worker, NEXT_KIND]
    time_ns = stages[stage, TIME_NS + kind]
    end_ns = workers[worker, NEXT_NS] + time_ns
    workers[worker, FREE_NS] = end_ns
    workers[worker, LEFT_NS] -= time_ns
    workers[worker, WAS] = kind
    stages[stage, DONE + kind] += 1
    stages[stage, WANTED_NS + kind] += pace_ns[kind]
    if kind == WEIGHT:
        stages[stage, HELD_BYTES] -= stages[stage, CELL_BYTES + 1]
        return int(end_ns)
    done = stages[stage, DONE + kind]
    known = done < stages[stage, KNOWN + kind]
    stages[stage, READY_NS + kind] = ready_ns[kind, stage, done] if known else NEVER
    if kind == FORWARD:
        stages[stage, HELD_BYTES] += stages[stage, CELL_BYTES]
    else:
        stages[stage, HELD_BYTES] += stages[stage, CELL_BYTES + 1] - stages[stage, CELL_BYTES]
    return int(end_ns)


@inlined
def _hand_on(
    stages: Int,
    ready_ns: Int,
    link_ns: Int,
    wire_ns: Int,
    latency_ns: Int,
    stage: int,
    kind: int,
    end_ns: int,
) -> int:
    """Let the stage know that can go on; returns its worker.

    The forward of the last stage lets its own backward go on.
    """
    target = stages[stage, TARGET + kind]
    worker, told = stages[stage, WORKER], stages[target, WORKER]
    made = BACKWARD if target == stage else kind
    if told != worker:
        cut = max(stages[stage, CUT], stages[target, CUT])
        end_ns = max(end_ns, link_ns[worker, told]) + wire_ns[kind, worker, told, cut]
        link_ns[worker, told] = end_ns
        end_ns += latency_ns[worker, told]
    known = stages[target, KNOWN + made]
    ready_ns[made, target, known] = end_ns
    if known == stages[target, DONE + made]:
        stages[target, READY_NS + made] = end_ns
    stages[target, KNOWN + made] = known + 1
    return int(told)


@inlined
def _choose(stages: Int, workers: Int, worker: int, num_microbatches: int) -> None:
    """Find what the worker does next, given all that is known to be on its way.

    num_microbatches: 0 if memory is not limited.
    """
    free_ns = workers[worker, FREE_NS]
    best_ns, wanted_ns, stage, kind = _look(stages, workers, worker, NOBODY, num_microbatches)
    if workers[worker, WAIT_NS] > 0 and stage != NOBODY:
        latest_ns = best_ns + workers[worker, WAIT_NS]
        best_ns, wanted_ns, stage, kind = _look(
            stages, workers, worker, latest_ns, num_microbatches
        )
    weight_wanted_ns, weight_stage = _look_for_weights(stages, workers, worker)
    if weight_stage != NOBODY:
        is_late = best_ns > free_ns + workers[worker, WAIT_NS + 1]
        if is_late or (best_ns == free_ns and weight_wanted_ns < wanted_ns):
            best_ns, stage, kind = free_ns, weight_stage, WEIGHT
    workers[worker, NEXT_NS] = best_ns
    workers[worker, NEXT_STAGE] = stage
    workers[worker, NEXT_KIND] = kind


@inlined
def _look(
    stages: Int, workers: Int, worker: int, latest_ns: int, num_microbatches: int
) -> tuple[int, int, int, int]:
    """Start, wish, stage and kind of the most wanted F or I that can start by then.

    latest_ns: negative to ask for the one that can start first; of several the most wanted.
    """
    free_ns = workers[worker, FREE_NS]
    turn_ns, was = workers[worker, TURN_NS], min(workers[worker, WAS], BACKWARD)
    best_ns, best_wanted_ns = NEVER, NEVER
    best_stage, best_kind = NOBODY, NOBODY
    for at in range(workers[worker, FIRST], workers[worker + 1, FIRST]):
        stage = stages[at, LANE]
        for kind in range(2):
            start_ns = max(stages[stage, READY_NS + kind], free_ns)
            if start_ns >= NEVER:
                continue
            wanted_ns = stages[stage, WANTED_NS + kind]
            if kind == was:
                wanted_ns += turn_ns
            if latest_ns < 0:
                if start_ns > best_ns or (start_ns == best_ns and wanted_ns >= best_wanted_ns):
                    continue
            elif start_ns > latest_ns or wanted_ns >= best_wanted_ns:
                continue
            limited = kind == FORWARD and num_microbatches > 0
            if limited and not _fits(stages, workers, worker, stage, num_microbatches):
                continue
            best_ns, best_wanted_ns, best_stage, best_kind = start_ns, wanted_ns, stage, kind
    return best_ns, best_wanted_ns, best_stage, best_kind


@inlined
def _look_for_weights(stages: Int, workers: Int, worker: int) -> tuple[int, int]:
    """Wish and stage of the most wanted W."""
    best_wanted_ns, best_stage = NEVER, NOBODY
    for at in range(workers[worker, FIRST], workers[worker + 1, FIRST]):
        stage = stages[at, LANE]
        if stages[stage, DONE + WEIGHT] < stages[stage, DONE + BACKWARD] * stages[stage, SPLIT]:
            wanted_ns = stages[stage, WANTED_NS + WEIGHT]
            if wanted_ns < best_wanted_ns:
                best_wanted_ns, best_stage = wanted_ns, stage
    return best_wanted_ns, best_stage


@compiled
def _fits(stages: Int, workers: Int, worker: int, own: int, num_microbatches: int) -> bool:
    """Whether there is room for one more forward, and for a microbatch of each other stage.

    So the oldest microbatch that is not through can always go on, and caps cannot deadlock.
    """
    needed_bytes = 0
    for at in range(workers[worker, FIRST], workers[worker + 1, FIRST]):
        stage = stages[at, LANE]
        held_bytes, one_bytes = stages[stage, HELD_BYTES], stages[stage, CELL_BYTES]
        if stage == own:
            needed_bytes += held_bytes + one_bytes
        elif stages[stage, DONE] < num_microbatches:
            needed_bytes += max(held_bytes, one_bytes)
        else:
            needed_bytes += held_bytes
    return bool(needed_bytes <= workers[worker, ROOM_BYTES])
