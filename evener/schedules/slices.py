"""Slices of microbatches in the orders in which causal attention lets them run.

A slice reads the keys and values of those before it, so forwards run in order; their gradients
come from the slices behind it, so backwards run in reverse inside a microbatch.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from evener.ir.action import Action, Kind
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
    return [Action(stage, kind, microbatch, number) for microbatch, number in units]


def _slices(shape: ScheduleShape) -> Sequence[int | None]:
    return (None,) if shape.num_slices == 1 else range(shape.num_slices)
