"""What a worker holds, action by action: a function of the list order and of sizes, of no time.

Effects follow ``ir.rules``, with what depends on the cell (stage, microbatch, slice) filled in:

- a cell that is recomputed takes a CHECKPOINT at its forward, and the ACTIVATION at R; the
  CHECKPOINT is also what it moves to host memory;
- a cell without a backward (evaluation) gives its ACTIVATION back when the forward ends;
- INPUT and OUTPUT_GRADIENT are the buffers of received messages: they are given back as often as
  the cell receives, never if its neighbour is on the same worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from evener.ir.action import Action, Kind
from evener.ir.rules import RULES, Resource
from evener.ir.schedule import Schedule


class Effect(NamedTuple):
    """Something is taken (sign +1) or given back (-1) at a stage, for a slice if there are any."""

    stage: int
    resource: Resource
    sign: int
    slice: int | None = None


@dataclass(frozen=True)
class MemoryTable:
    """Sizes of what memory is taken for.

    per_stage: per resource, bytes of one unit at each stage; resources left out take nothing.
    static_bytes: per worker, what it holds all the time (weights, gradients, optimizer, ...).
    per_slice: per resource, the bytes of each slice at each stage, in place of ``per_stage`` where
        an action is on a slice; resources left out take the same for every slice.
    """

    per_stage: Mapping[Resource, tuple[int, ...]]
    static_bytes: tuple[int, ...]
    per_slice: Mapping[Resource, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def size_bytes(self, resource: Resource, stage: int, token_slice: int | None = None) -> int:
        if token_slice is not None and resource in self.per_slice:
            return self.per_slice[resource][stage][token_slice]
        sizes = self.per_stage.get(resource)
        return 0 if sizes is None else sizes[stage]

    def effect_bytes(self, effect: Effect) -> int:
        """By how much an effect changes what its worker holds."""
        return effect.sign * self.size_bytes(effect.resource, effect.stage, effect.slice)


class MemoryStep(NamedTuple):
    """What one action takes and gives when it is issued, and when the next one is issued."""

    at_start: tuple[Effect, ...]
    at_end: tuple[Effect, ...]


_PLAIN = (False, True, 0, 0)
_IN_FLIGHT = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})
_DEPENDS_ON_CELL = frozenset({Kind.F, Kind.B, Kind.I, Kind.FREE, Kind.RELOAD})


class _Cells:
    """What the effects on a cell depend on, read from its worker's whole list."""

    def __init__(self, actions: tuple[Action, ...]) -> None:
        self._count: dict[Kind, dict[tuple[int, int | None, int | None], int]] = {
            kind: {} for kind in Kind
        }
        for stage, kind, microbatch, token_slice, _, _ in actions:
            count = self._count[kind]
            cell = (stage, microbatch, token_slice)
            count[cell] = count.get(cell, 0) + 1

    def signature(self, action: Action) -> tuple[bool, bool, int, int]:
        """(recomputed, has a backward, number of receives forward, ... backward)."""
        if action.kind not in _DEPENDS_ON_CELL:
            return _PLAIN
        cell = (action.stage, action.microbatch, action.slice)
        return (
            cell in self._count[Kind.R],
            cell in self._count[Kind.B] or cell in self._count[Kind.I],
            self._count[Kind.RECV_F].get(cell, 0),
            self._count[Kind.RECV_B].get(cell, 0),
        )


def memory_steps(schedule: Schedule) -> list[MemoryStep]:
    """What every action takes and gives, in flat order."""
    steps, step_of = numbered_memory_steps(schedule)
    return [steps[number] for number in step_of]


def numbered_memory_steps(schedule: Schedule) -> tuple[list[MemoryStep], list[int]]:
    """The few distinct steps, and for every action in flat order which of them is its own."""
    steps: list[MemoryStep] = []
    known: dict[tuple[object, ...], int] = {}
    step_of: list[int] = []
    for actions in schedule.workers:
        cells = _Cells(actions)
        for action in actions:
            signature = cells.signature(action)
            key = (action.stage, action.kind, action.slice, signature)
            number = known.get(key)
            if number is None:
                number = known[key] = len(steps)
                steps.append(_step(action, *signature))
            step_of.append(number)
    return steps, step_of


def peak_bytes(schedule: Schedule, table: MemoryTable) -> tuple[int, ...]:
    """The most that each worker ever holds, in bytes, whatever the times are."""
    steps, step_of = numbered_memory_steps(schedule)
    starts = [_sum(step.at_start, table) for step in steps]
    ends = [_sum(step.at_end, table) for step in steps]
    peaks = []
    flat = iter(step_of)
    for worker, actions in enumerate(schedule.workers):
        held = peak = table.static_bytes[worker]
        for number in islice(flat, len(actions)):
            held += starts[number]
            peak = max(peak, held)
            held += ends[number]
            peak = max(peak, held)
        peaks.append(peak)
    return tuple(peaks)


def peak_in_flight(schedule: Schedule) -> tuple[int, ...]:
    """Per worker, the most cells whose forward was issued and whose last backward has not ended.

    A cell without a backward counts until its forward ends.
    """
    peaks = []
    for actions in schedule.workers:
        last = {
            (action.stage, action.microbatch, action.slice): position
            for position, action in enumerate(actions)
            if action.kind in _IN_FLIGHT
        }
        held = peak = 0
        for position, action in enumerate(actions):
            held += action.kind is Kind.F
            peak = max(peak, held)
            if action.kind in _IN_FLIGHT:
                held -= last[action.stage, action.microbatch, action.slice] == position
        peaks.append(peak)
    return tuple(peaks)


def _sum(effects: tuple[Effect, ...], table: MemoryTable) -> int:
    return sum(map(table.effect_bytes, effects))


def _step(
    action: Action, recomputed: bool, has_backward: bool, num_inputs: int, num_gradients: int
) -> MemoryStep:
    rule = RULES[action.kind]
    takes_at_start, gives_at_end = rule.takes_at_start, rule.gives_at_end
    if action.kind is Kind.F and recomputed:
        takes_at_start = (Resource.CHECKPOINT,)
    elif action.kind is Kind.F and not has_backward:
        gives_at_end = (Resource.ACTIVATION,)
    elif action.kind is Kind.FREE and recomputed:
        gives_at_end = (Resource.CHECKPOINT,)
    elif action.kind is Kind.RELOAD and recomputed:
        takes_at_start = (Resource.CHECKPOINT,)
    buffers = {Resource.INPUT: num_inputs, Resource.OUTPUT_GRADIENT: num_gradients}

    def effects(takes: tuple[Resource, ...], gives: tuple[Resource, ...]) -> tuple[Effect, ...]:
        given = chain.from_iterable((what,) * buffers.get(what, 1) for what in gives)
        return (
            *(Effect(action.stage, what, 1, action.slice) for what in takes),
            *(Effect(action.stage, what, -1, action.slice) for what in given),
        )

    return MemoryStep(
        effects(takes_at_start, rule.gives_at_start), effects(rule.takes_at_end, gives_at_end)
    )
