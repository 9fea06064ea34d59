"""A program in the shape that the kernel reads: actions sorted into classes of equal cost."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from evener.interp.program import KIND_CODE, STREAM_CODE, Program
from evener.ir.action import Action, Kind
from evener.ir.memory import Effect
from evener.ir.rules import Resource, Stream
from evener.sim.kernel import ALONE, LAST_MEMBER, MEMBER, RECEIVE, Classes, Int, Order

RESOURCES = tuple(Resource)

_COMPUTE = STREAM_CODE[Stream.COMPUTE]


@dataclass(frozen=True, eq=False)
class Layout:
    """A program for the kernel, and what is needed to price its classes of actions.

    times: [4, class], worker, stage, kind and slice (-1 if none) of each class.
    wire: [class], on which wire its first need arrives, or a SEND leaves; 0 is none.
    wires: [5, wire], source worker, target worker, stage, slice and whether it carries an
        activation.
    is_send, is_receive: bool[class].
    is_braid_head: bool[class], the first actions of braids: their time is that of the second.
    braids: [3, class], the classes of second actions, with stage and kind of the first.
    named: classes whose time ``CostTable.time_ns`` does not hold, with one action of each, behind
        the first action of its braid if it is the second.
    at_start, at_end: [5, effect], class, resource, stage, slice and sign of what is taken or given
        back.
    """

    order: Order
    classes: Classes
    times: Int
    wire: Int
    wires: Int
    is_send: NDArray[np.bool_]
    is_receive: NDArray[np.bool_]
    is_braid_head: NDArray[np.bool_]
    braids: Int
    named: tuple[tuple[int, tuple[Action, ...]], ...]
    at_start: Int
    at_end: Int

    @property
    def num_workers(self) -> int:
        return len(self.order.first) - 1


_layouts: "WeakKeyDictionary[Program, Layout]" = WeakKeyDictionary()


def layout_of(program: Program, singles: Collection[Action] = ()) -> Layout:
    """The layout of a program, built once.

    singles: actions with a time of their own; each is a class for itself, and named.
    """
    if singles:
        return _lay_out(program, singles)
    layout = _layouts.get(program)
    if layout is None:
        layout = _layouts[program] = _lay_out(program)
    return layout


@dataclass(frozen=True)
class _Needs:
    """All needs, by the place of the needy action in topological order.

    owner, need: flat indices of an action and of what it needs. wire: on which it arrives.
    is_first: whether it is the first one of its owner.
    """

    owner: Int
    need: Int
    wire: Int
    is_first: NDArray[np.bool_]


def _lay_out(program: Program, singles: Collection[Action] = ()) -> Layout:
    num_actions = len(program.actions)
    is_send = _of_kind(program, Kind.SEND_F, Kind.SEND_B)
    is_receive = _of_kind(program, Kind.RECV_F, Kind.RECV_B)
    senders = np.flatnonzero(is_send)
    owner, need = _reduced_needs(program, is_receive)
    wire_of_need, wire_of_send, wires = _wires(program, owner, need, senders)
    needs = _Needs(owner, need, wire_of_need, np.diff(owner, prepend=-1) != 0)
    wire = np.zeros(num_actions, dtype=np.int64)
    wire[owner[needs.is_first]] = wire_of_need[needs.is_first]
    wire[senders] = wire_of_send

    way, lane, special = _ways(program, is_receive), _lanes(program), _special(program, singles)
    front = np.full(num_actions, -1, dtype=np.int64)  # of a braid's second action, the first
    front[program.braids[:, 1]] = program.braids[:, 0]
    front_stage, front_kind = (
        np.where(front >= 0, column[front], -1) for column in (program.stage, program.kind)
    )
    num_more = np.bincount(owner[~needs.is_first], minlength=num_actions)
    # The memory step tells the slices apart already.
    class_of, example = number_rows(
        *(program.worker, program.stage, program.kind, program.memory_step),
        *(way, num_more, lane, wire, special, front_stage, front_kind),
    )
    seconds = np.flatnonzero(front[example] >= 0)
    classes = Classes(
        way=way[example],
        lane=_index(lane[example]),
        num_more=num_more[example],
        size=np.bincount(class_of, minlength=len(example)),
    )
    steps = [program.memory_steps[step] for step in program.memory_step[example]]
    named = tuple(
        (number, tuple(program.actions[each] for each in (front[index], index) if each >= 0))
        for number, index in enumerate(example)
        if special[index]
    )
    return Layout(
        order=_order(program, class_of, needs),
        classes=classes,
        times=_columns(example, program.worker, program.stage, program.kind, program.token_slice),
        wire=wire[example],
        wires=wires,
        is_send=is_send[example],
        is_receive=is_receive[example],
        is_braid_head=np.isin(example, program.braids[:, 0]),
        braids=np.stack([seconds, front_stage[example][seconds], front_kind[example][seconds]]),
        named=named,
        at_start=_effects([step.at_start for step in steps]),
        at_end=_effects([step.at_end for step in steps]),
    )


def _order(program: Program, class_of: Int, needs: _Needs) -> Order:
    first_need = np.full(len(program.actions), len(program.actions), dtype=np.int64)
    first_need[needs.owner[needs.is_first]] = needs.need[needs.is_first]
    return Order(
        action_class=_index(class_of[program.order]),
        flat=_index(program.order),
        need=_index(first_need[program.order]),
        more_needs=_index(needs.need[~needs.is_first]),
        more_wires=_index(needs.wire[~needs.is_first]),
        flat_class=_index(class_of),
        first=program.first_of_worker.astype(np.int64),
        first_backward=_ends_of_workers(program, _of_kind(program, Kind.B, Kind.I), first=True),
        last_forward=_ends_of_workers(program, _of_kind(program, Kind.F), first=False),
    )


def _reduced_needs(program: Program, is_receive: NDArray[np.bool_]) -> tuple[Int, Int]:
    """Each action and what it needs, by the action's place in topological order.

    The compute actions that an asynchronous action waits for, being needed or standing before it
    in the list, follow one another: the last of them stands for all.
    """
    owner = np.repeat(np.arange(len(program.actions)), np.diff(program.needs_ptr))
    need = program.needs_idx.astype(np.int64)
    is_compute = program.stream == _COMPUTE
    is_beside = ~is_compute & ~is_receive
    is_own = program.worker[owner] == program.worker[need]
    implied = is_beside[owner] & is_compute[need] & is_own
    last = np.where(is_beside, program.issue_after, -1).astype(np.int64)
    np.maximum.at(last, owner[implied], need[implied])
    waiting = np.flatnonzero(last >= 0)
    owner = np.concatenate([owner[~implied], waiting])
    need = np.concatenate([need[~implied], last[waiting]])
    place = np.empty(len(program.actions), dtype=np.int64)
    place[program.order] = np.arange(len(program.actions))
    by_place = np.argsort(place[owner], kind="stable")
    return owner[by_place], need[by_place]


def _wires(program: Program, owner: Int, need: Int, senders: Int) -> tuple[Int, Int, Int]:
    """Number the (source, target, stage, slice, is it forward) on which needs and messages travel.

    Returns the wire of each need, that of each sender, and the wires; number 0 is none.
    """
    carried = np.concatenate([need, senders])
    source = program.worker[carried]
    target = np.concatenate([program.worker[owner], program.peer_worker[senders]])
    is_activation = _of_kind(program, Kind.F, Kind.SEND_F)[carried]
    columns = np.zeros((5, 1 + len(carried)), dtype=np.int64)
    stage, token_slice = program.stage[carried], program.token_slice[carried]
    columns[:, 1:] = source, target, stage, token_slice, is_activation
    columns[:, 1:][:, source == target] = 0
    number, example = number_rows(*columns)
    return number[1 : 1 + len(need)], number[1 + len(need) :], columns[:, example]


def _ways(program: Program, is_receive: NDArray[np.bool_]) -> NDArray[np.int8]:
    way = np.full(len(program.actions), ALONE, dtype=np.int8)
    way[is_receive] = RECEIVE
    in_order = program.collective[program.order]
    is_member = in_order >= 0
    is_last = is_member.copy()
    is_last[:-1] &= in_order[:-1] != in_order[1:]
    way[program.order[is_member]] = MEMBER
    way[program.order[is_last]] = LAST_MEMBER
    way[program.braids[:, 0]] = MEMBER
    way[program.braids[:, 1]] = LAST_MEMBER
    return way


def _lanes(program: Program) -> Int:
    """The queue of each action: first the compute streams by worker, then what runs beside."""
    beside = program.stream != _COMPUTE
    lane = program.worker.astype(np.int64)
    if beside.any():
        numbers, _ = number_rows(program.stream, program.worker, program.peer_worker)
        lane[beside] = len(program.first_of_worker) - 1 + numbers[beside]
    return lane


def _special(program: Program, singles: Collection[Action]) -> Int:
    """A number above 0 for each name of side work and each pair of stages that reduce together.

    And for each of the single actions, and each braid that holds one.
    """
    special = np.zeros(len(program.actions), dtype=np.int64)
    numbers: dict[object, int] = {}
    for index in np.flatnonzero(_of_kind(program, Kind.X, Kind.REDUCE)):
        action = program.actions[index]
        if action.kind is Kind.X or action.peer is not None:
            key = action._replace(microbatch=None, slice=None)
            special[index] = numbers.setdefault(key, len(numbers) + 1)
    if singles:
        for place, action in enumerate(program.actions):
            if action in singles:
                special[place] = numbers.setdefault((action,), len(numbers) + 1)
        for first, second in program.braids:
            if special[first] and not special[second]:
                special[second] = numbers.setdefault((second,), len(numbers) + 1)
    return special


def _ends_of_workers(program: Program, chosen: NDArray[np.bool_], *, first: bool) -> Int:
    """Flat index of each worker's first or last chosen action; -1 if it has none."""
    found = np.full(len(program.first_of_worker) - 1, -1, dtype=np.int64)
    indices = np.flatnonzero(chosen)
    if first:
        indices = indices[::-1]
    found[program.worker[indices]] = indices
    return found


def _effects(steps: Sequence[Sequence[Effect]]) -> Int:
    rows = [
        (number, RESOURCES.index(resource), stage, -1 if token_slice is None else token_slice, sign)
        for number, effects in enumerate(steps)
        for stage, resource, sign, token_slice in effects
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 5).T


def _columns(places: Int, *columns: NDArray[Any]) -> Int:
    return np.stack([column[places].astype(np.int64) for column in columns])


def _of_kind(program: Program, *kinds: Kind) -> NDArray[np.bool_]:
    return np.isin(program.kind, [KIND_CODE[kind] for kind in kinds])


def number_rows(*columns: NDArray[Any]) -> tuple[Int, Int]:
    """Number the distinct rows; returns each row's number and the first row of each number."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    size = 1
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if size * (high - low + 1) >= 2**62:
            _, key = np.unique(key, return_inverse=True)
            size = len(key)
        key = key * (high - low + 1) + (column - low)
        size *= high - low + 1
    _, example, number = np.unique(key, return_index=True, return_inverse=True)
    return number, example


def _index(values: NDArray[Any]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(values, dtype=np.uint32)
