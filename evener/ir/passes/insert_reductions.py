"""Write out what the STEPs of a schedule with several updates wait for: REDUCE, NORM, SHARE.

The generator has placed the STEPs, since they decide which weights every action reads.  The workers
that hold a stage share one optimizer state, as in ZeRO-1 (Rajbhandari et al., SC 2020): the first
of them updates, and the others take its weights over at their own STEP.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from evener.ir.action import Action, Kind
from evener.ir.passes.replay import Durations, Timed, end_times, merge
from evener.ir.schedule import Schedule

_GRADIENT_KINDS = (Kind.B, Kind.W)
# At one time: first what the later ones may wait for.
_RANK = {Kind.REDUCE: 0, Kind.NORM: 1, Kind.SHARE: 2}


def insert_reductions(
    schedule: Schedule,
    *,
    tied: Sequence[tuple[int, int]] = (),
    clip: bool = False,
    durations_ns: Durations | None = None,
) -> Schedule:
    """The same schedule with gradient reductions, exchanges of the norm, and weights handed on.

    Arguments: see ``insert_step``.

    All are put at the times of one common replay in which nothing but they and the STEPs wait, so
    that every worker lists them in one order.

    Raises ScheduleError if the schedule cannot run to the end.
    """
    waiting = _with_waits(schedule, sorted(tied), clip)
    ends = end_times(waiting, durations_ns)
    timed = _timed(waiting, ends)
    workers = []
    flat = iter(ends)
    for worker, actions in enumerate(waiting.workers):
        own_ends = [next(flat) for _ in actions]
        pairs = [pair for pair in zip(actions, own_ends, strict=True) if pair[0].kind not in _RANK]
        compute, compute_ends = zip(*pairs, strict=True) if pairs else ((), ())
        workers.append(merge(compute, list(compute_ends), timed[worker]))
    return replace(schedule, workers=tuple(workers))


def _with_waits(schedule: Schedule, tied: Sequence[tuple[int, int]], clip: bool) -> Schedule:
    """The waits of more than one stage, in front of the STEPs; those of one stage go without."""
    holders = schedule.workers_of_stage
    workers = []
    for worker, actions in enumerate(schedule.workers):
        own = schedule.stages_of_worker[worker]
        pairs = [
            pair for pair in tied if len(group := {*holders[pair[0]], *holders[pair[1]]}) > 1
            and worker in group
        ]  # fmt: skip
        listed: list[Action] = []
        for is_step, run in groupby(actions, key=lambda action: action.kind is Kind.STEP):
            together = list(run)
            if is_step:
                update = together[0].microbatch
                listed += [Action(s, Kind.REDUCE, update, peer=t) for s, t in pairs]
                listed += [Action(own[0], Kind.NORM, update)] if clip else []
            listed += together
        workers.append(tuple(listed))
    return replace(schedule, workers=tuple(workers))


def _timed(schedule: Schedule, ends: list[int]) -> list[list[Timed]]:
    """Per worker, the collectives with the times at which they can be, in one order for all."""

    def key(found: tuple[int, Action, int]) -> tuple[int, ...]:
        ready_ns, action, _ = found
        stage = -1 if action.kind is Kind.NORM else action.stage  # of NORM not the same for all
        peer = -1 if action.peer is None else action.peer
        return ready_ns, schedule.update_of(action), _RANK[action.kind], min(peer, 0), stage, peer

    timed: list[list[Timed]] = [[] for _ in schedule.workers]
    in_order = sorted(_collectives(schedule, ends), key=key)
    for number, (ready_ns, action, worker) in enumerate(in_order):
        timed[worker].append(Timed(ready_ns, number, action))
    return timed


def _collectives(schedule: Schedule, ends: list[int]) -> Iterator[tuple[int, Action, int]]:
    """(ready, action, worker) of every member of every collective."""
    holders = schedule.workers_of_stage
    timed = list(zip(schedule.actions(), ends, strict=True))
    # Per stage and update, the last gradient of all workers.
    ready: dict[tuple[int, int], int] = {}
    for (_, action), end in timed:
        if action.kind in _GRADIENT_KINDS:
            key = action.stage, schedule.update_of(action)
            ready[key] = max(end, ready.get(key, 0))
    for (worker, action), end in timed:
        stage, update = action.stage, schedule.update_of(action)
        if action.kind is Kind.NORM:
            stages = range(schedule.num_stages)
            yield max(ready.get((each, update), 0) for each in stages), action, worker
        elif action.kind is Kind.REDUCE:
            assert action.peer is not None, "the others are written here"
            yield max(ready[stage, update], ready[action.peer, update]), action, worker
        elif action.kind is Kind.STEP and len(holders[stage]) > 1:
            yield ready[stage, update], action._replace(kind=Kind.REDUCE), worker
            if worker == holders[stage][0]:
                for member in holders[stage]:
                    yield end, action._replace(kind=Kind.SHARE), member
