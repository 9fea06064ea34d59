"""A schedule as flat arrays: everything about it that does not depend on costs."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evener.ir.action import Action, Kind
from evener.ir.dependencies import Dependencies
from evener.ir.memory import MemoryStep, numbered_memory_steps, peak_in_flight
from evener.ir.order import Order, require_order
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule

KIND_CODE = {kind: code for code, kind in enumerate(Kind)}
STREAM_CODE = {stream: code for code, stream in enumerate(Stream)}


@dataclass(frozen=True, eq=False)
class Program:
    """Arrays with one entry per action in flat order (worker by worker); -1 means none.

    actions: the actions themselves.
    kind, stream: position in ``list(Kind)`` and ``list(Stream)``.
    stage, worker, microbatch, token_slice: global indices.
    needs_ptr, needs_idx: what action i waits for is needs_idx[needs_ptr[i]:needs_ptr[i + 1]].
    order: one order in which all can run; members of a collective and of a braid stand next to
        one another.
    issue_after: the last compute action before it in its worker's list.
    stream_after: the one before it on its stream; of a SEND, the SEND before it on the same
        directed channel; none for compute actions and RECVs.
    match: of a SEND its RECV and the other way round. peer_worker: the worker of that one.
    collective: number of the collective that the action is part of.
    members_ptr, members_idx: the actions of each collective.
    braids: [braid, 2], the two actions of each.
    memory_step: position in ``memory_steps`` of what the action takes and gives.
    peak_in_flight: per worker, see ``ir.memory``.
    first_of_worker: position of each worker's first action, and the total at the end.
    """

    actions: tuple[Action, ...]
    kind: NDArray[np.int8]
    stream: NDArray[np.int8]
    stage: NDArray[np.int32]
    worker: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    token_slice: NDArray[np.int32]
    needs_ptr: NDArray[np.int32]
    needs_idx: NDArray[np.int32]
    order: NDArray[np.int32]
    issue_after: NDArray[np.int32]
    stream_after: NDArray[np.int32]
    match: NDArray[np.int32]
    peer_worker: NDArray[np.int32]
    collective: NDArray[np.int32]
    members_ptr: NDArray[np.int32]
    members_idx: NDArray[np.int32]
    braids: NDArray[np.int32]
    memory_step: NDArray[np.int32]
    memory_steps: tuple[MemoryStep, ...]
    peak_in_flight: tuple[int, ...]
    first_of_worker: NDArray[np.int32]


# Schedules hash slowly, so programs are kept by identity, for as long as their schedule lives.
_programs: dict[int, Program] = {}


def compile_program(schedule: Schedule) -> Program:
    """The program of a schedule, built once. Raises ScheduleError if it cannot run to the end."""
    program = _programs.get(id(schedule))
    if program is None:
        program = _programs[id(schedule)] = _compile(schedule)
        weakref.finalize(schedule, _programs.pop, id(schedule), None).atexit = False
    return program


def _compile(schedule: Schedule) -> Program:
    dependencies, order = require_order(schedule)
    actions = dependencies.actions
    kind = _int32([KIND_CODE[action.kind] for action in actions])
    stream_of_kind = np.array([STREAM_CODE[RULES[kind].stream] for kind in Kind], dtype=np.int8)
    needs_ptr, needs_idx = _rows(dependencies.needs)
    members_ptr, members_idx = _rows(dependencies.collectives)
    collective = np.full(len(actions), -1, dtype=np.int32)
    collective[members_idx] = np.repeat(
        np.arange(len(members_ptr) - 1, dtype=np.int32), np.diff(members_ptr)
    )
    worker = _int32(dependencies.worker_of)
    match = _int32(dependencies.match)
    steps, step_of = numbered_memory_steps(schedule)
    return Program(
        actions=tuple(actions),
        kind=kind.astype(np.int8),
        stream=stream_of_kind[kind],
        stage=_int32([action.stage for action in actions]),
        worker=worker,
        microbatch=_int32([-1 if a.microbatch is None else a.microbatch for a in actions]),
        token_slice=_int32([-1 if a.slice is None else a.slice for a in actions]),
        needs_ptr=needs_ptr,
        needs_idx=needs_idx,
        order=_int32(order.order),
        issue_after=_int32(order.issue_after),
        stream_after=_int32(_channel_after(dependencies, order)),
        match=match,
        peer_worker=np.where(match >= 0, worker[match], np.int32(-1)),
        collective=collective,
        members_ptr=members_ptr,
        members_idx=members_idx,
        braids=_int32(dependencies.braids).reshape(-1, 2),
        memory_step=_int32(step_of),
        memory_steps=tuple(steps),
        peak_in_flight=peak_in_flight(schedule),
        first_of_worker=_int32(np.cumsum([0, *map(len, schedule.workers)])),
    )


def _channel_after(dependencies: Dependencies, order: Order) -> list[int]:
    """The order on each stream, where the messages of a pair run in both directions at once."""
    after = order.stream_after.copy()
    last: dict[tuple[int, int], int] = {}
    for index, action in enumerate(dependencies.actions):
        if action.kind in (Kind.SEND_F, Kind.SEND_B):
            source = dependencies.worker_of[index]
            target = dependencies.worker_of[dependencies.match[index]]
            after[index] = last.get((source, target), -1)
            last[source, target] = index
        elif action.kind in (Kind.RECV_F, Kind.RECV_B):
            after[index] = -1
    return after


def _int32(
    values: Sequence[int] | Sequence[tuple[int, int]] | NDArray[np.int64],
) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Where each row begins (and the last one ends), and all rows as one array."""
    ends = np.cumsum([0, *map(len, rows)])
    return _int32(ends), _int32([value for row in rows for value in row])
