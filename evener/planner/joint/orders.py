"""Orders written down action by action, and the time that they take.

The judge's rules reach only some orders.  This is the second half of the search: every worker has a
list, and the simulator plays the lists.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from evener.compiled import uncounted
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.planner.joint.bench import Bench
from evener.planner.joint.state import State
from evener.planner.joint.world import BACKWARD, FORWARD, NEVER, WEIGHT, WHOLE, Int, World
from evener.planner.partition.contiguous import Partition

NOBODY = -1

NAME = "joint"
"""The name of schedules that were searched."""


class Orders(NamedTuple):
    """Lists of actions; all int64.

    cut: [stage + 1]. worker, whole: [stage], as in a state. action: [worker, place], stage * 3 +
    kind; an action's microbatch is how often it stands in front of it. length: [worker].
    """

    cut: Int
    worker: Int
    whole: Int
    action: Int
    length: Int


class Deck(NamedTuple):
    """Where lists are played; all int64.

    time_ns: [stage, F I W]. done, known: [stage, F I W], as in the judge. ready_ns: [F or I, stage,
    microbatch]; maker: alike, the place of the action that makes it ready, or NOBODY.
    free_ns, left_ns, place: [worker]. link_ns: [source, target]. to_do: [worker], those
    that may go on, each once: waiting: [worker].
    cause: [worker, place], 1 if an action started when what it needs arrived, 0 if when its worker
    was free. critical: [action, (worker, place)], the longest chain, from the end to the begin;
    num_critical: [1]. spent: [1], actions played and traced so far.
    """

    time_ns: Int
    done: Int
    known: Int
    ready_ns: Int
    maker: Int
    free_ns: Int
    left_ns: Int
    place: Int
    link_ns: Int
    to_do: Int
    waiting: Int
    cause: Int
    critical: Int
    num_critical: Int
    spent: Int


def orders_of(world: World, state: State, bench: Bench) -> Orders:
    """What the bench wrote down when it judged the state."""
    num_workers, num_microbatches = int(world.sizes[0]), int(world.sizes[1])
    count = int(state.num_stages[0])
    whole = state.whole[:count].copy()
    num_actions = num_microbatches * (3 * count - int(whole.sum()))
    codes = bench.codes[:num_actions]
    worker = state.worker[:count][codes // 3]
    length = np.bincount(worker, minlength=num_workers)
    action = np.zeros((num_workers, max(1, length.max())), dtype=np.int64)
    for each in range(num_workers):
        action[each, : length[each]] = codes[worker == each]
    return Orders(state.cut[: count + 1].copy(), state.worker[:count].copy(), whole, action, length)


def new_deck(world: World, orders: Orders) -> Deck:
    """Room to play lists of this size."""
    num_workers, num_microbatches = int(world.sizes[0]), int(world.sizes[1])
    num_stages = len(orders.worker)

    def room(*shape: int) -> Int:
        return np.zeros(shape, dtype=np.int64)

    return Deck(
        time_ns=room(num_stages, 3),
        done=room(num_stages, 3),
        known=room(num_stages, 3),
        ready_ns=room(2, num_stages, num_microbatches),
        maker=room(2, num_stages, num_microbatches),
        free_ns=room(num_workers),
        left_ns=room(num_workers),
        place=room(num_workers),
        link_ns=room(num_workers, num_workers),
        to_do=room(num_workers),
        waiting=room(num_workers),
        cause=room(*orders.action.shape),
        critical=room(orders.action.size + 1, 2),
        num_critical=room(1),
        spent=room(1),
    )


@uncounted
def play(world: World, orders: Orders, deck: Deck, limit_ns: int) -> int:
    """Time of a step; NEVER if it is more than the limit or the lists cannot run to the end."""
    if not _deal(world, orders, deck, limit_ns):
        return NEVER
    num_to_do, last_stage = len(deck.to_do), len(orders.worker) - 1
    # Taken out of their tuples once: numba counts references each time.
    time_ns, done, known = deck.time_ns, deck.done, deck.known
    ready_ns, maker, cause, link_ns = deck.ready_ns, deck.maker, deck.cause, deck.link_ns
    worker_of, waiting, to_do, cut = orders.worker, deck.waiting, deck.to_do, orders.cut
    wire_ns, latency_ns = world.wire_ns, world.latency_ns
    action, places, length = orders.action, deck.place, orders.length
    frees_ns, lefts_ns, spent = deck.free_ns, deck.left_ns, deck.spent
    while num_to_do > 0:
        num_to_do -= 1
        worker = to_do[num_to_do]
        waiting[worker] = 0
        place, free_ns, left_ns = places[worker], frees_ns[worker], lefts_ns[worker]
        while place < length[worker]:
            stage, kind = action[worker, place] // 3, action[worker, place] % 3
            number = done[stage, kind]
            ahead = done[stage, BACKWARD] if kind == WEIGHT else known[stage, kind]
            if number >= ahead:
                break
            cause[worker, place] = 0
            if kind != WEIGHT and ready_ns[kind, stage, number] > free_ns:
                free_ns = ready_ns[kind, stage, number]
                cause[worker, place] = 1
            free_ns += time_ns[stage, kind]
            left_ns -= time_ns[stage, kind]
            spent[0] += 1
            if free_ns + left_ns > limit_ns:
                return NEVER
            done[stage, kind] = number + 1
            place += 1
            if kind == WEIGHT or (kind == BACKWARD and stage == 0):
                continue
            arrival_ns, target = free_ns, stage - 1
            if kind == FORWARD:
                target = min(stage + 1, last_stage)
            made = BACKWARD if kind == FORWARD and stage == last_stage else kind
            other = worker_of[target]
            if other != worker:
                border = cut[max(stage, target)]
                arrival_ns = max(arrival_ns, link_ns[worker, other])
                arrival_ns += wire_ns[kind, worker, other, border]
                link_ns[worker, other] = arrival_ns
                arrival_ns += latency_ns[worker, other]
                if waiting[other] == 0:
                    waiting[other] = 1
                    to_do[num_to_do] = other
                    num_to_do += 1
            ready_ns[made, target, number] = arrival_ns
            maker[made, target, number] = place - 1
            known[target, made] = number + 1
        places[worker], frees_ns[worker], lefts_ns[worker] = place, free_ns, left_ns
    return _end_ns(orders, deck)


@uncounted
def _end_ns(orders: Orders, deck: Deck) -> int:
    """When the last worker has stepped its optimizer; NEVER if a list is not at its end."""
    end_ns = 0
    for worker in range(len(orders.length)):
        if deck.place[worker] < orders.length[worker]:
            return NEVER
        end_ns = max(end_ns, deck.free_ns[worker] + deck.left_ns[worker])
    return end_ns


@uncounted
def _deal(world: World, orders: Orders, deck: Deck, limit_ns: int) -> bool:
    """Price the stages and begin anew; False if a worker has more work than the limit."""
    cut, until_ns, num_microbatches = orders.cut, world.until_ns, world.sizes[1]
    time_ns, left_ns = deck.time_ns, deck.left_ns
    overhead_ns = world.overhead_ns[0]
    deck.done[:] = 0
    deck.known[:] = 0
    deck.free_ns[:] = 0
    left_ns[:] = 0
    deck.place[:] = 0
    deck.link_ns[:] = 0
    for stage in range(len(orders.worker)):
        begin, end, worker = cut[stage], cut[stage + 1], orders.worker[stage]
        all_ns = 0
        for kind in range(3):
            row = WHOLE if kind == BACKWARD and orders.whole[stage] == 1 else kind
            own_ns = until_ns[row, worker, end] - until_ns[row, worker, begin] + overhead_ns
            time_ns[stage, kind] = own_ns
            if kind != WEIGHT or orders.whole[stage] == 0:
                all_ns += own_ns
        step_ns = world.step_ns[end] - world.step_ns[begin] + overhead_ns
        left_ns[worker] += all_ns * num_microbatches + step_ns
    deck.known[0, FORWARD] = num_microbatches
    deck.ready_ns[FORWARD, 0] = 0
    deck.maker[FORWARD, 0] = NOBODY
    for worker in range(len(left_ns)):
        deck.to_do[worker] = worker
        deck.waiting[worker] = 1
        if left_ns[worker] > limit_ns:
            return False
    return True


@uncounted
def holds_too_much(world: World, orders: Orders) -> bool:
    """Whether a worker is ever over its cap."""
    cut, again = orders.cut, world.sizes[3]
    for worker in range(world.sizes[0]):
        held_bytes, work_bytes, again_bytes = 0, 0, 0
        for stage in range(len(orders.worker)):
            if orders.worker[stage] != worker:
                continue
            begin, end = cut[stage], cut[stage + 1]
            held_bytes += world.state_bytes[end] - world.state_bytes[begin]
            for layer in range(begin, end):
                work_bytes = max(work_bytes, world.work_bytes[layer])
            saved_bytes = world.activation_bytes[end] - world.activation_bytes[begin]
            again_bytes = max(again_bytes, saved_bytes * again)
        held_bytes += work_bytes + again_bytes
        for place in range(orders.length[worker]):
            stage, kind = orders.action[worker, place] // 3, orders.action[worker, place] % 3
            begin, end = cut[stage], cut[stage + 1]
            saved_bytes = world.activation_bytes[end] - world.activation_bytes[begin]
            if again == 1:
                saved_bytes = world.input_bytes[begin]
            weight_bytes = world.weight_bytes[end] - world.weight_bytes[begin]
            if kind == FORWARD:
                held_bytes += saved_bytes
            elif kind == BACKWARD:
                held_bytes += weight_bytes * (1 - orders.whole[stage]) - saved_bytes
            else:
                held_bytes -= weight_bytes
            if held_bytes > world.cap_bytes[worker]:
                return True
    return False


@uncounted
def trace(world: World, orders: Orders, deck: Deck) -> None:
    """Write the longest chain of the lists that were played last into ``deck.critical``."""
    num_workers = world.sizes[0]
    worker = 0
    for other in range(1, num_workers):
        own_ns = deck.free_ns[worker] + deck.left_ns[worker]
        if deck.free_ns[other] + deck.left_ns[other] > own_ns:
            worker = other
    # The place of each microbatch follows from counting, from the end of each list to its begin.
    done, at = deck.done, deck.place
    place = orders.length[worker] - 1
    count = 0
    while place >= 0:
        while at[worker] > place:
            at[worker] -= 1
            code = orders.action[worker, at[worker]]
            done[code // 3, code % 3] -= 1
        deck.critical[count, 0], deck.critical[count, 1] = worker, place
        count += 1
        if deck.cause[worker, place] == 0:
            place -= 1
            continue
        code = orders.action[worker, place]
        stage, kind = code // 3, code % 3
        place = deck.maker[kind, stage, done[stage, kind]]
        if kind == FORWARD:
            worker = orders.worker[stage - 1]
        elif stage + 1 < len(orders.worker):
            worker = orders.worker[stage + 1]
    deck.num_critical[0] = count
    deck.spent[0] += count


def partition_of(orders: Orders) -> Partition:
    """The layers of every stage."""
    return tuple(pairwise(orders.cut.tolist()))


def schedule_of(orders: Orders, num_microbatches: int) -> Schedule:
    """The lists as a schedule."""
    num_stages = len(orders.worker)
    done = [0] * (3 * num_stages)
    workers = []
    for row, length in zip(orders.action.tolist(), orders.length.tolist(), strict=True):
        actions = []
        for code in row[:length]:
            stage, kind = divmod(code, 3)
            name = (
                Kind.B
                if kind == BACKWARD and orders.whole[stage]
                else (Kind.F, Kind.I, Kind.W)[kind]
            )
            actions.append(Action(stage, name, done[code]))
            done[code] += 1
        workers.append(tuple(actions))
    return Schedule(NAME, num_stages, num_microbatches, tuple(workers))
