"""Times of a schedule under given durations, where messages and collectives take no time.

The passes put messages and collectives at times of one common clock, so that the same order holds
on every worker.  Any durations give a correct order; the truer they are, the earlier things run.
"""

from collections.abc import Callable
from typing import TypeAlias

from evener.ir.action import Action, Kind
from evener.ir.order import require_order
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule

Durations: TypeAlias = Callable[[int, Action], int]
"""Worker and compute action -> nanoseconds (or any other unit)."""

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
        end[index] = start
        # The members stand next to one another: the last one makes the end of all.
        for member in group_of.get(index, ()):
            end[member] = max(end[member], start)
    return end
