"""When every action of a schedule started and ended: predicted by ``sim`` or measured by a run.

Predicted and measured are one type, so their difference is a subtraction.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from evener.ir.action import Action
from evener.ir.schedule import Schedule


class Span(NamedTuple):
    """One action with its start and end in nanoseconds since the step began."""

    action: Action
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """Start and end of every action of one step.

    source: where the times come from, for people: "predicted", "measured", "virtual clock", ...
    schedule: the schedule that was played, with the messages if they were played.
    start_ns, end_ns: one value per action in the schedule's flat order (worker by worker).
    memory_bytes: per action in flat order, what its worker holds right after it; empty if unknown.
    peak_bytes: per worker, the most that it ever holds (also inside an action); empty if unknown.
    """

    source: str
    schedule: Schedule
    start_ns: "array[int]"
    end_ns: "array[int]"
    memory_bytes: "array[int]" = field(default_factory=lambda: array("q"))
    peak_bytes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.start_ns) == len(self.end_ns) == self.schedule.num_actions

    @cached_property
    def step_ns(self) -> int:
        """From the first start to the last end (0 for an empty schedule)."""
        if not self.start_ns:
            return 0
        return max(self.end_ns) - min(self.start_ns)

    @property
    def update_ns(self) -> int:
        """The time of one optimizer update; see ``Schedule.update_ns``."""
        return self.schedule.update_ns(self.step_ns)

    @cached_property
    def first_of_worker(self) -> tuple[int, ...]:
        """Flat index of each worker's first action, and the total at the end."""
        firsts = [0]
        for actions in self.schedule.workers:
            firsts.append(firsts[-1] + len(actions))
        return tuple(firsts)

    def spans(self, worker: int) -> Iterator[Span]:
        """The spans of one worker in its list order."""
        first = self.first_of_worker[worker]
        for offset, action in enumerate(self.schedule.workers[worker]):
            yield Span(action, self.start_ns[first + offset], self.end_ns[first + offset])
