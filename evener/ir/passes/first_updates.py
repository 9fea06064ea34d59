"""The beginning of a schedule of several updates, for a run that ends within it."""

from dataclasses import replace

from evener.ir.action import Action, Kind
from evener.ir.schedule import CELL_KINDS, Schedule, Updates


def first_updates(schedule: Schedule, number: int) -> Schedule:
    """The schedule without the microbatches and STEPs of updates from ``number`` on.

    What is left keeps its order, so it reads the weights that it read before.
    """
    assert 1 <= number <= schedule.updates.number
    if number == schedule.updates.number:
        return schedule

    def named(action: Action) -> Action:
        is_whole_stage = action.kind not in CELL_KINDS
        return action._replace(microbatch=None) if number == 1 and is_whole_stage else action

    staleness = min(schedule.updates.staleness, number - 1)
    workers = tuple(
        tuple(named(action) for action in actions if schedule.update_of(action) < number)
        for actions in schedule.workers
    )
    return replace(
        schedule,
        workers=workers,
        num_microbatches=number * schedule.update_size,
        braids=frozenset(each for each in schedule.braids if schedule.update_of(each) < number),
        updates=replace(schedule.updates, number=number, staleness=staleness),
    )


def without_steps(schedule: Schedule) -> Schedule:
    """The microbatches of one update, whose gradients are kept for the next."""
    if schedule.updates.number == 1:
        return schedule
    first = first_updates(schedule, 1)
    workers = tuple(
        tuple(action for action in actions if action.kind is not Kind.STEP)
        for actions in first.workers
    )
    return replace(first, workers=workers, updates=Updates())
