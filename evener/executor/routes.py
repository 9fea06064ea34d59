"""How values and gradients get from stage to stage, within a worker and between workers."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from torch import Tensor

from evener.ir.action import Action, Kind
from evener.ir.schedule import Cell, Schedule
from evener.modules.stage import detached
from evener.modules.values import Skeleton, Value, from_message, is_differentiable, to_message

Arrived: TypeAlias = tuple[Skeleton, list[Tensor]]


class Routes(Protocol):
    """What has come and was not used yet, by the cell that will use it, and what is to be sent."""

    @property
    def arrived(self) -> dict[Cell, Arrived]: ...

    @property
    def gradients(self) -> dict[Cell, Sequence[Tensor]]: ...

    @property
    def is_empty(self) -> bool: ...

    def payload(self, action: Action) -> tuple[Tensor, ...]:
        """What a SEND sends."""
        ...

    def accept(self, action: Action, tensors: tuple[Tensor, ...]) -> None:
        """What a RECV has received."""
        ...

    def hand_on(self, cell: Cell, output: Value) -> None:
        """Give the output of a forward to the stages behind it."""
        ...

    def hand_back(self, cell: Cell, gradients: Sequence[Tensor]) -> None:
        """Give the gradients of a forward's inputs to the stages before it."""
        ...


def routes_of(schedule: Schedule, worker: int) -> Routes:
    """Those of one worker of a schedule."""
    chain = tuple((stage, stage + 1) for stage in range(schedule.num_stages - 1))
    kind = _Chain if schedule.stage_edges == chain else _Graph
    return kind(schedule, worker)


class _Chain:
    """Between stages of which each has at most one before and one behind."""

    def __init__(self, schedule: Schedule, worker: int) -> None:
        self.arrived: dict[Cell, Arrived] = {}
        self.gradients: dict[Cell, Sequence[Tensor]] = {}
        self._outgoing: dict[tuple[Kind, Cell], tuple[Tensor, ...]] = {}
        self._runner, self._worker = schedule.runner, worker

    @property
    def is_empty(self) -> bool:
        return not (self.arrived or self.gradients or self._outgoing)

    def payload(self, action: Action) -> tuple[Tensor, ...]:
        return self._outgoing.pop((action.kind, cell_of(action)))

    def accept(self, action: Action, tensors: tuple[Tensor, ...]) -> None:
        if action.kind is Kind.RECV_F:
            self.arrived[cell_of(action)] = from_message(tensors)
        else:
            self.gradients[cell_of(action)] = tensors

    def hand_on(self, cell: Cell, output: Value) -> None:
        stage, microbatch, token_slice = cell
        skeleton, tensors = detached(output)
        following = (stage + 1, microbatch, token_slice)
        if self._runner[following] == self._worker:
            self.arrived[following] = copy_of((skeleton, tensors))
        else:
            self._outgoing[Kind.SEND_F, cell] = to_message(skeleton, tensors)

    def hand_back(self, cell: Cell, gradients: Sequence[Tensor]) -> None:
        stage, microbatch, token_slice = cell
        before = (stage - 1, microbatch, token_slice)
        if self._runner[before] == self._worker:
            self.gradients[before] = gradients
        else:
            self._outgoing[Kind.SEND_B, cell] = tuple(gradients)


class _Graph:
    """Between stages of which some have several before or behind.

    A stage with several before it is given a tuple of their outputs; the gradients that come from
    several stages behind are added up.
    """

    def __init__(self, schedule: Schedule, worker: int) -> None:
        self.arrived: dict[Cell, Arrived] = {}
        self.gradients: dict[Cell, Sequence[Tensor]] = {}
        self._outgoing: dict[tuple[Kind, Cell, int | None], tuple[Tensor, ...]] = {}
        self._runner, self._worker = schedule.runner, worker
        self._before, self._behind = schedule.predecessors, schedule.successors
        # By cell and the stage it is from, until all are there.
        self._parts: dict[Cell, dict[int, Arrived]] = {}
        # Per pair of stages, how many tensors of what one hands to the other have gradients.
        self._num_gradients: dict[tuple[int, int], int] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.arrived or self.gradients or self._outgoing or self._parts)

    def payload(self, action: Action) -> tuple[Tensor, ...]:
        return self._outgoing.pop((action.kind, cell_of(action), action.peer))

    def accept(self, action: Action, tensors: tuple[Tensor, ...]) -> None:
        if action.kind is Kind.RECV_F:
            (source,) = (action.peer,) if action.peer is not None else self._before[action.stage]
            self._arrive(cell_of(action), source, from_message(tensors))
        else:
            self._add(cell_of(action), tensors)

    def hand_on(self, cell: Cell, output: Value) -> None:
        stage, microbatch, token_slice = cell
        skeleton, tensors = detached(output)
        behind = self._behind[stage]
        for number in behind:
            following = (number, microbatch, token_slice)
            if self._runner[following] == self._worker:
                self._arrive(following, stage, copy_of((skeleton, tensors)))
            else:
                peer = number if len(behind) > 1 else None
                self._outgoing[Kind.SEND_F, cell, peer] = to_message(skeleton, tensors)

    def hand_back(self, cell: Cell, gradients: Sequence[Tensor]) -> None:
        stage, microbatch, token_slice = cell
        before, first = self._before[stage], 0
        for number in before:
            end = first + self._num_gradients[number, stage]
            own, first = gradients[first:end], end
            producer = (number, microbatch, token_slice)
            if self._runner[producer] == self._worker:
                self._add(producer, own)
            else:
                peer = number if len(before) > 1 else None
                self._outgoing[Kind.SEND_B, cell, peer] = tuple(own)

    def _arrive(self, cell: Cell, source: int, value: Arrived) -> None:
        before = self._before[cell[0]]
        self._num_gradients[source, cell[0]] = sum(map(is_differentiable, value[1]))
        if len(before) == 1:
            self.arrived[cell] = value
            return
        parts = self._parts.setdefault(cell, {})
        parts[source] = value
        if len(parts) == len(before):
            del self._parts[cell]
            in_order = [parts[number] for number in before]
            skeleton = ["tuple", *(own for own, _ in in_order)]
            self.arrived[cell] = skeleton, [each for _, own in in_order for each in own]

    def _add(self, cell: Cell, gradients: Sequence[Tensor]) -> None:
        present = self.gradients.get(cell)
        if present is not None:
            gradients = [a + b for a, b in zip(present, gradients, strict=True)]
        self.gradients[cell] = gradients


def copy_of(value: Arrived) -> Arrived:
    """The next stage's layers may change it in place, and the graph before it may need it."""
    skeleton, tensors = value
    return skeleton, [tensor.clone() for tensor in tensors]


def cell_of(action: Action) -> Cell:
    """Where an action of a cell belongs."""
    assert action.microbatch is not None, f"{action} has no microbatch"
    return action.stage, action.microbatch, action.slice
