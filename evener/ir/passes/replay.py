"""Times of a schedule under given durations, where messages and collectives take no time.

The passes put messages and collectives at times of one common clock, so that the same order holds
on every worker.  Any durations give a correct order; the truer they are, the earlier things run.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from evener.ir.action import Action, Kind
from evener.ir.order import require_order
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule

Durations: TypeAlias = Callable[[int, Action], int]
"""Worker and compute action -> nanoseconds (or any other unit)."""


class Timed(NamedTuple):
    """Something to insert at its time; the number breaks ties alike on all workers."""

    ready_ns: int
    number: int
    action: Action


# Side work fills time in which its worker waits anyhow.
_UNITS = {Kind.F: 1, Kind.B: 2, Kind.I: 1, Kind.W: 1, Kind.R: 1, Kind.X: 0}


def unit_durations(worker: int, action: Action) -> int:
    """One unit for F, I, W, R and everything else, two for B, none for side work."""
    del worker
    return _UNITS.get(action.kind, 1)


def takes_time(kind: Kind) -> bool:
    """Whether an action holds its worker for a while of its own, and not only to wait."""
    return RULES[kind].stream is Stream.COMPUTE and kind is not Kind.FREE


def end_times(schedule: Schedule, durations_ns: Durations | None) -> list[int]:
    """When every action ends, in flat order. Raises ScheduleError if the schedule gets stuck.

    A compute action that makes something takes at least 1, so that no two of a worker end at once,
    but those of a braid: it takes the time of both.
    """
    duration = durations_ns or unit_durations
    dependencies, order = require_order(schedule)
    groups = (*dependencies.collectives, *dependencies.braids)
    group_of = {index: group for group in groups for index in group}
    end = [0] * len(dependencies.actions)
    for index in order.order:
        action = dependencies.actions[index]
        start = max((end[before] for before in dependencies.needs[index]), default=0)
        previous = order.issue_after[index]
        if previous >= 0:
            start = max(start, end[previous])
        if takes_time(action.kind):
            least = 0 if action.kind is Kind.X else 1
            start += max(least, duration(dependencies.worker_of[index], action))
        # The members stand next to one another: none ends before the last one can start.
        end[index] = start = max(end[index], start)
        for member in group_of.get(index, ()):
            end[member] = max(end[member], start)
    return end


def merge(
    actions: tuple[Action, ...], ends: list[int], timed: Iterable[Timed]
) -> tuple[Action, ...]:
    """Each before the first compute action that ends after it is ready; ``timed`` is sorted."""
    merged: list[Action] = []
    waiting = iter((*timed, None))
    item = next(waiting)
    now = 0
    side_work: list[Action] = []  # to stand right before the next other action
    for action, end in zip(actions, ends, strict=True):
        if action.kind is Kind.X:
            side_work.append(action)
            continue
        # What became ready with the compute action before goes before what takes no time, too.
        limit = now + 1
        if takes_time(action.kind):
            limit = now = end
        while item is not None and item.ready_ns < limit:
            merged.append(item.action)
            item = next(waiting)
        merged += (*side_work, action)
        side_work = []
    while item is not None:
        merged.append(item.action)
        item = next(waiting)
    return (*merged, *side_work)
