"""Spread the head of the model over all workers of a pipeline, as a graph of stages.

The head's logits are the largest activation of a long sequence and its matrix the widest, and the
worker of the last stage alone has both.  Here every worker has a run of rows of the matrix.  Behind
the S stages of the chain come one stage for each of p workers, which takes the output of stage
S - 1 to two numbers per token and rows, and stage S + p, which takes those of all rows to the loss.

Source: "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM Training",
SC 2025 (arXiv 2504.14519).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from evener.ir.action import Action, Kind
from evener.ir.passes.replay import Durations, end_times, takes_time, unit_durations
from evener.ir.schedule import Cell, Schedule

_BACKWARD = (Kind.B, Kind.I)


class _Part(IntEnum):
    """What of the head runs in a turn. In this order where turns of one cell come together."""

    FORWARD = 0
    LOSS = 1
    BACKWARD = 2


class _Turn(NamedTuple):
    """When something of the head is to run, in an order that all workers agree on.

    ready_ns: in a replay of the chain. worker: the cell's, of the last stage. slot: place among
    its compute actions. at_once: whether that is right behind the forward of the cell, and so comes
    last of what has the slot. number: place of the action that asks for it.
    """

    ready_ns: int
    worker: int
    slot: int
    at_once: bool
    part: _Part
    number: int
    cell: Cell


def spread_head(schedule: Schedule, durations_ns: Durations | None = None) -> Schedule:
    """The same schedule of one pipeline with the stages of a spread head; see above.

    schedule: compute actions (and offloads) over a chain of stages, without braids, side work or
        several updates.
    durations_ns: see ``insert_messages``.

    Forwards of the head run as soon as the last stage has run, where that falls between two actions
    of a worker.  Loss and backwards run one action of the last stage's worker before it needs them,
    so that their messages travel meanwhile.  All follow one order of times, in which what they need
    comes before them and what needs them behind: no worker waits in a circle.

    Raises ScheduleError if the schedule cannot run to the end.
    """
    starts, ends = _spans(schedule, durations_ns)
    turns = sorted(
        turn
        for worker in range(schedule.num_workers)
        for turn in _turns(schedule, worker, ends[worker])
    )
    workers = []
    for worker, actions in enumerate(schedule.workers):
        timed = [place for place, action in enumerate(actions) if takes_time(action.kind)]
        before: dict[int, list[Action]] = defaultdict(list)
        for turn in turns:
            slot = bisect_left(starts[worker], turn.ready_ns)
            place = timed[slot] if slot < len(timed) else len(actions)
            before[place] += _actions_of(schedule, worker, turn)
        merged: list[Action] = []
        for place, action in enumerate(actions):
            merged += (*before[place], action)
        workers.append((*merged, *before[len(actions)]))
    last, num_workers = schedule.num_stages - 1, schedule.num_workers
    parts = range(last + 1, last + 1 + num_workers)
    loss = parts.stop
    edges = (
        *schedule.stage_edges,
        *((last, part) for part in parts),
        *((part, loss) for part in parts),
    )
    return replace(schedule, workers=tuple(workers), num_stages=loss + 1, edges=edges)


def _spans(
    schedule: Schedule, durations_ns: Durations | None
) -> tuple[list[list[int]], list[list[int]]]:
    """Per worker, when each of its compute actions starts and ends."""
    duration = durations_ns or unit_durations
    flat = iter(end_times(schedule, durations_ns))
    starts: list[list[int]] = [[] for _ in schedule.workers]
    ends: list[list[int]] = [[] for _ in schedule.workers]
    for worker, action in schedule.actions():
        end = next(flat)
        if takes_time(action.kind):
            starts[worker].append(end - max(1, duration(worker, action)))
            ends[worker].append(end)
    return starts, ends


def _turns(schedule: Schedule, worker: int, ends: list[int]) -> Iterator[_Turn]:
    """Of the cells of the last stage that a worker runs."""
    last = schedule.num_stages - 1
    timed = [action for action in schedule.workers[worker] if takes_time(action.kind)]
    own = {
        place: (a.stage, a.microbatch, a.slice)
        for place, a in enumerate(timed)
        if a.stage == last and a.microbatch is not None
    }
    behind = {cell: place + 1 for place, cell in own.items() if timed[place].kind is Kind.F}
    turns: list[tuple[Cell, int, bool, _Part, int]] = []
    latest = (0, False)
    for place, cell in own.items():
        if timed[place].kind in _BACKWARD:
            slot = max(place - 1, behind[cell])
            # A backward never comes before that of the slice behind it.
            latest = max(latest, (slot, slot == behind[cell]))
            turns.append((cell, *latest, _Part.BACKWARD, place))
            # One action later than the other forwards of the head, if there is one between.
            loss = min(behind[cell] + 1, slot)
            turns.append((cell, loss, loss == behind[cell], _Part.LOSS, behind[cell]))
            turns.append((cell, behind[cell], True, _Part.FORWARD, behind[cell]))
    for cell, slot, at_once, part, number in turns:
        yield _Turn(ends[slot - 1], worker, slot, at_once, part, number, cell)


def _actions_of(schedule: Schedule, worker: int, turn: _Turn) -> list[Action]:
    """What a worker does in a turn."""
    _, microbatch, token_slice = turn.cell
    own = Action(schedule.num_stages + worker, Kind.F, microbatch, token_slice)
    loss = own._replace(stage=schedule.num_stages + schedule.num_workers)
    computes_loss = worker == turn.worker
    match turn.part:
        case _Part.FORWARD:
            return [own]
        case _Part.LOSS:
            return [loss] if computes_loss else []
        case _Part.BACKWARD:
            backward = own._replace(kind=Kind.B)
            return [loss._replace(kind=Kind.B), backward] if computes_loss else [backward]
