"""The schedule of an evaluation: forwards alone."""

from dataclasses import replace

from evener.ir.action import Kind
from evener.ir.schedule import Schedule, Updates


def forward_only(schedule: Schedule) -> Schedule:
    """Keep the forwards of a compute-only schedule, each on its worker and in its order.

    So an evaluation between two steps runs where the parameters of the training schedule are.
    """
    workers = tuple(
        tuple(action for action in actions if action.kind is Kind.F) for actions in schedule.workers
    )
    name = f"{schedule.name}_forward_only"
    return replace(schedule, name=name, workers=workers, braids=frozenset(), updates=Updates())
