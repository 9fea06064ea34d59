"""Slices of microbatches in the orders in which causal attention lets them run.

A slice reads the keys and values of those before it, so forwards run in order; their gradients
come from the slices behind it, so backwards run in reverse inside a microbatch.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TypeAlias

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.alternate import alternate
from evener.schedules.shape import ScheduleShape

Unit: TypeAlias = tuple[int, int | None]
"""(microbatch, slice); the slice is None where microbatches are not cut."""


def units_of(shape: ScheduleShape, microbatches: Iterable[int]) -> list[Unit]:
    """All slices of some microbatches, first in first out."""
    slices = _slices(shape)
    return [(microbatch, number) for microbatch in microbatches for number in slices]


def reversed_units_of(shape: ScheduleShape, microbatches: Iterable[int]) -> list[Unit]:
    """The same, last in first out over the slices of a microbatch."""
    slices = _slices(shape)[::-1]
    return [(microbatch, number) for microbatch in microbatches for number in slices]


def unit_row(stage: int, kind: Kind, units: Iterable[Unit]) -> list[Action]:
    """One action per unit, in the given order."""
    # `map` over the constructor: the planner generates schedules in its inner loop.
    return list(map(Action, repeat(stage), repeat(kind), *zip(*units, strict=True)))


def one_f_one_b_of_slices(name: str, shape: ScheduleShape, in_flight: Sequence[int]) -> Schedule:
    """1F1B over slices, for stage s on worker s.

    in_flight: per worker, the slices that it holds at most.
    """
    microbatches = range(shape.num_microbatches)
    units, back = units_of(shape, microbatches), reversed_units_of(shape, microbatches)
    workers = tuple(
        alternate(unit_row(stage, Kind.F, units), unit_row(stage, Kind.B, back), in_flight=held)
        for stage, held in enumerate(in_flight)
    )
    return Schedule(
        name, shape.num_stages, shape.num_microbatches, workers, num_slices=shape.num_slices
    )


def _slices(shape: ScheduleShape) -> Sequence[int | None]:
    return (None,) if shape.num_slices == 1 else range(shape.num_slices)
