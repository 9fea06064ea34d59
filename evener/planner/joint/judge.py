"""The judge of the joint search: a state becomes an order of actions and the time that it takes.

A greedy list scheduler and the simulator in one pass, over flat arrays that are used again for
every state.  Times are those of ``evener.sim``: messages occupy their direction of a link one after
another, a worker steps its optimizer when its last action has ended.  What workers do together at
the end of a step (reductions, the exchange of the gradients' norm) is left to the simulator.
"""

from evener.compiled import inlined, uncounted
from evener.planner.joint.bench import (
    CHAIN_NS,
    CODE,
    DONE,
    FIRST,
    FREE_NS,
    HELD_BYTES,
    KEPT_BYTES,
    KNOWN,
    LATENCY_NS,
    LATEST_NS,
    LEFT_NS,
    LINK,
    NEXT,
    NEXT_KIND,
    NOBODY,
    PENDING,
    REACHED_NS,
    REST_BYTES,
    ROOM_BYTES,
    SPLIT,
    STAGE,
    STALE,
    TARGET,
    TIME_NS,
    TOLD,
    TURN_NS,
    WAIT_NS,
    WAS,
    WAY_NS,
    WEIGHT_NS,
    WIRE_NS,
    WISH_NS,
    Bench,
    has_room,
    prepare,
)
from evener.planner.joint.state import State
from evener.planner.joint.world import BACKWARD, FORWARD, NEVER, WEIGHT, Int, World


@uncounted
def judge(world: World, state: State, bench: Bench, limit_ns: int) -> int:
    """Time of a step, or NEVER if it is more than the limit or memory is too small.

    ``bench`` keeps the order of actions.
    """
    prepare(world, state, bench)
    bench.spent[0] += state.num_stages[0]
    limited = world.cap_bytes[0] < NEVER
    if limited and not has_room(world, state, bench):
        return NEVER
    num_workers, num_microbatches = world.sizes[0], world.sizes[1]
    slots, ranks, workers, next_ns = bench.slots, bench.ranks, bench.workers, bench.next_ns
    ready_ns, wanted_ns, weight_ns = bench.ready_ns, bench.wanted_ns, bench.weight_ns
    open_ns = bench.open_ns if limited else ready_ns
    queue_ns, link_ns, pace_ns, codes = bench.queue_ns, bench.link_ns, state.pace_ns, bench.codes
    if not _can_end(workers, num_workers, limit_ns):
        return NEVER
    next_ns[:] = 0
    num_actions, action = _num_actions(ranks, state.num_stages[0], num_microbatches), 0
    while action < num_actions:
        worker = _soonest(next_ns, num_workers)
        now_ns = next_ns[worker]
        if workers[worker, NEXT_KIND] == STALE:
            if limited:
                _open(slots, ranks, workers, ready_ns, open_ns, worker, num_microbatches)
            _choose(workers, open_ns, wanted_ns, weight_ns, next_ns, worker)
            if next_ns[worker] > now_ns:  # perhaps it is another one's turn
                continue
        kind = workers[worker, NEXT_KIND]
        if now_ns >= NEVER:
            bench.spent[0] += action
            return NEVER
        if kind == WEIGHT:
            rank = workers[worker, NEXT]
            codes[action] = 3 * ranks[rank, STAGE] + WEIGHT
            end_ns = _issue_weight(ranks, workers, weight_ns, pace_ns[WEIGHT], worker, now_ns)
            least_ns = end_ns
        else:
            slot = workers[worker, NEXT]
            codes[action] = slots[slot, CODE]
            end_ns = _issue(slots, ranks, workers, worker, now_ns)
            least_ns = end_ns + max(slots[slot, WAY_NS], workers[worker, CHAIN_NS])
            _follow(slots, ranks, ready_ns, wanted_ns, weight_ns, queue_ns, slot, pace_ns[kind])
            if slots[slot, TARGET] != NOBODY:
                _hand_on(slots, ready_ns, queue_ns, link_ns, workers, next_ns, slot, end_ns)
        if max(least_ns, end_ns + workers[worker, LEFT_NS]) > limit_ns:
            bench.spent[0] += action
            return NEVER
        workers[worker, NEXT_KIND] = STALE
        next_ns[worker] = end_ns
        action += 1
    bench.spent[0] += num_actions
    end_ns = 0
    for worker in range(num_workers):
        end_ns = max(end_ns, workers[worker, FREE_NS] + workers[worker, LEFT_NS])
    return end_ns


@uncounted
def _num_actions(ranks: Int, num_stages: int, num_microbatches: int) -> int:
    per_microbatch = 2 * num_stages
    for rank in range(num_stages):
        per_microbatch += ranks[rank, SPLIT]
    return per_microbatch * num_microbatches


@uncounted
def _can_end(workers: Int, num_workers: int, limit_ns: int) -> bool:
    """Whether each worker has time for its work once the first microbatch has come to it."""
    for worker in range(num_workers):
        rest_ns = max(workers[worker, LEFT_NS], workers[worker, CHAIN_NS])
        if workers[worker, REACHED_NS] + rest_ns > limit_ns:
            return False
    return True


@inlined
def _soonest(next_ns: Int, num_workers: int) -> int:
    """The worker that acts next; of several the lowest."""
    worker, best_ns = 0, next_ns[0]
    for other in range(1, num_workers):
        if next_ns[other] < best_ns:
            worker, best_ns = other, next_ns[other]
    return worker


@inlined
def _issue_weight(
    ranks: Int, workers: Int, weight_ns: Int, pace_ns: int, worker: int, now_ns: int
) -> int:
    """Let the worker do its W; returns the end of that."""
    rank = workers[worker, NEXT]
    time_ns = ranks[rank, WEIGHT_NS]
    workers[worker, FREE_NS] = now_ns + time_ns
    workers[worker, LEFT_NS] -= time_ns
    workers[worker, WAS] = BACKWARD
    ranks[rank, HELD_BYTES] -= ranks[rank, REST_BYTES]
    ranks[rank, WISH_NS] += pace_ns
    ranks[rank, PENDING] -= 1
    weight_ns[rank] = ranks[rank, WISH_NS] if ranks[rank, PENDING] > 0 else NEVER
    return int(now_ns + time_ns)


@inlined
def _issue(slots: Int, ranks: Int, workers: Int, worker: int, now_ns: int) -> int:
    """Let the worker do its F or I; returns the end of that."""
    slot = workers[worker, NEXT]
    rank, kind = slot >> 1, slot & 1
    time_ns = slots[slot, TIME_NS]
    workers[worker, FREE_NS] = now_ns + time_ns
    workers[worker, LEFT_NS] -= time_ns
    workers[worker, CHAIN_NS] -= time_ns
    workers[worker, WAS] = kind
    if kind == FORWARD:
        ranks[rank, HELD_BYTES] += ranks[rank, KEPT_BYTES]
    else:
        ranks[rank, HELD_BYTES] += ranks[rank, REST_BYTES] - ranks[rank, KEPT_BYTES]
    return int(now_ns + time_ns)


@inlined
def _follow(
    slots: Int,
    ranks: Int,
    ready_ns: Int,
    wanted_ns: Int,
    weight_ns: Int,
    queue_ns: Int,
    slot: int,
    pace_ns: int,
) -> None:
    """What the stage can do next: the same for another microbatch, and its W."""
    done = slots[slot, DONE] + 1
    slots[slot, DONE] = done
    wanted_ns[slot] += pace_ns
    ready_ns[slot] = queue_ns[slot, done] if done < slots[slot, KNOWN] else NEVER
    rank = slot >> 1
    if slot & 1 == BACKWARD and ranks[rank, SPLIT] == 1:
        ranks[rank, PENDING] += 1
        weight_ns[rank] = ranks[rank, WISH_NS]


@inlined
def _hand_on(
    slots: Int,
    ready_ns: Int,
    queue_ns: Int,
    link_ns: Int,
    workers: Int,
    next_ns: Int,
    slot: int,
    end_ns: int,
) -> None:
    """Let the stage know that can go on; its worker chooses anew if that may change its mind.

    The forward of the last stage lets its own backward go on.
    """
    target, link = slots[slot, TARGET], slots[slot, LINK]
    if link != NOBODY:
        end_ns = max(end_ns, link_ns[link]) + slots[slot, WIRE_NS]
        link_ns[link] = end_ns
        end_ns += slots[slot, LATENCY_NS]
    known = slots[target, KNOWN]
    slots[target, KNOWN] = known + 1
    queue_ns[target, known] = end_ns
    if known == slots[target, DONE]:
        ready_ns[target] = end_ns
        told = slots[slot, TOLD]
        if end_ns <= workers[told, LATEST_NS]:
            workers[told, NEXT_KIND] = STALE
            next_ns[told] = workers[told, FREE_NS]


@inlined
def _choose(
    workers: Int, open_ns: Int, wanted_ns: Int, weight_ns: Int, next_ns: Int, worker: int
) -> None:
    """Find what the worker does next, given all that is known to be on its way.

    Of F and I it takes the most wanted that can start soon enough after the first that can start; a
    W if those come late or are wanted less.
    """
    free_ns = workers[worker, FREE_NS]
    first, end = workers[worker, FIRST], workers[worker + 1, FIRST]
    turn_ns, was = workers[worker, TURN_NS], workers[worker, WAS]
    soonest_ns, latest_ns = NEVER, free_ns + workers[worker, WAIT_NS]
    best_ns, best_wanted_ns, best = NEVER, NEVER, NOBODY
    for slot in range(2 * first, 2 * end):
        soonest_ns = min(soonest_ns, open_ns[slot])
        own_ns = wanted_ns[slot] + (turn_ns if slot & 1 == was else 0)
        if open_ns[slot] <= latest_ns and own_ns < best_wanted_ns:
            best_wanted_ns, best = own_ns, slot
    if soonest_ns > free_ns:
        latest_ns = NEVER
        if soonest_ns < NEVER:
            latest_ns = soonest_ns + workers[worker, WAIT_NS]
            for slot in range(2 * first, 2 * end):
                own_ns = wanted_ns[slot] + (turn_ns if slot & 1 == was else 0)
                if open_ns[slot] <= latest_ns and own_ns < best_wanted_ns:
                    best_wanted_ns, best = own_ns, slot
    if best != NOBODY:
        best_ns = max(open_ns[best], free_ns)
    kind = best & 1
    weight_wanted_ns, weight = NEVER, NOBODY
    for rank in range(first, end):
        if weight_ns[rank] < weight_wanted_ns:
            weight_wanted_ns, weight = weight_ns[rank], rank
    if weight != NOBODY:
        is_late = best_ns > free_ns + workers[worker, WAIT_NS + 1]
        if is_late or (best_ns == free_ns and weight_wanted_ns < best_wanted_ns):
            best_ns, best, kind = free_ns, weight, WEIGHT
    workers[worker, LATEST_NS] = latest_ns
    workers[worker, NEXT] = best
    workers[worker, NEXT_KIND] = kind
    next_ns[worker] = best_ns


@inlined
def _open(
    slots: Int,
    ranks: Int,
    workers: Int,
    ready_ns: Int,
    open_ns: Int,
    worker: int,
    num_microbatches: int,
) -> None:
    """Forwards are open where there is room for one more, and for a microbatch of each other stage.

    So the oldest microbatch that is not through can always go on, and caps cannot deadlock.
    """
    first, end = workers[worker, FIRST], workers[worker + 1, FIRST]
    needed_bytes = 0
    for rank in range(first, end):
        held_bytes, one_bytes = ranks[rank, HELD_BYTES], ranks[rank, KEPT_BYTES]
        is_through = slots[2 * rank, DONE] == num_microbatches
        needed_bytes += held_bytes if is_through else max(held_bytes, one_bytes)
    for rank in range(first, end):
        held_bytes, one_bytes = ranks[rank, HELD_BYTES], ranks[rank, KEPT_BYTES]
        more_bytes = held_bytes + one_bytes - max(held_bytes, one_bytes)
        fits = needed_bytes + more_bytes <= workers[worker, ROOM_BYTES]
        open_ns[2 * rank] = ready_ns[2 * rank] if fits else NEVER
        open_ns[2 * rank + 1] = ready_ns[2 * rank + 1]
