"""Actions of one kind on one stage, microbatch by microbatch: what all generators are made of."""

from collections.abc import Iterable
from itertools import repeat

from evener.ir.action import Action, Kind


def row(stage: int, kind: Kind, microbatches: Iterable[int]) -> list[Action]:
    """One action per microbatch, in the given order."""
    # `map` over the constructor: the planner generates schedules in its inner loop.
    return list(map(Action, repeat(stage), repeat(kind), microbatches))
