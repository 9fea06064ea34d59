"""Split the backward of a schedule without changing its order."""

from dataclasses import replace

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule


def split_backward(schedule: Schedule) -> Schedule:
    """Write every B as I with its W right behind it.

    The stage before gets its gradient after I instead of after B, which shortens the drain.
    Source: Qi et al. 2024 (arXiv 2401.10241), sec. 1, the split itself.
    """
    workers = tuple(
        tuple(half for a in actions for half in _halves(a)) for actions in schedule.workers
    )
    return replace(schedule, name=f"{schedule.name}_split_backward", workers=workers)


def _halves(action: Action) -> tuple[Action, ...]:
    if action.kind is not Kind.B:
        return (action,)
    return action._replace(kind=Kind.I), action._replace(kind=Kind.W)
