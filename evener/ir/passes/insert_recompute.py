"""Write out that forwards are computed again: R right in front of the backward of every cell.

Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174), with a stage as the
segment: of a forward only its input is kept.
"""

from collections.abc import Iterator
from dataclasses import replace

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule


def insert_recompute(schedule: Schedule) -> Schedule:
    """The same schedule in which every B and I has its R; one that has an R already, as it is.

    schedule: compute-only.
    """
    if Kind.R in schedule.kinds:
        return schedule
    workers = tuple(tuple(_repeated(actions, schedule.braids)) for actions in schedule.workers)
    return replace(schedule, workers=workers)


def _repeated(actions: tuple[Action, ...], braids: frozenset[Action]) -> Iterator[Action]:
    """Nothing comes between the two actions of a braid."""
    held: Action | None = None
    for action in actions:
        if action.kind in (Kind.B, Kind.I):
            yield action._replace(kind=Kind.R)
        if held is not None:
            yield held
            held = None
        if action in braids:
            held = action
        else:
            yield action
