"""What one worker does next, and what it waits for: the executor's only source of order.

No clock and no tensors here.
"""

from collections.abc import Iterator
from typing import NamedTuple

from evener.ir.action import Action
from evener.ir.order import require_order
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule


class Step(NamedTuple):
    """One action of a worker.

    position: in the worker's list.
    waits_for: the worker's own asynchronous actions (receives, collectives, copies) that must have
        ended before this one starts.  Its compute actions follow one another anyhow.
    """

    position: int
    action: Action
    waits_for: tuple[Action, ...]


class WorkerProgram:
    """The steps of one worker in the order in which it issues them: that of its list.

    braids: position of the second action of each braid -> that of the first, right before it.

    Raises ScheduleError if the schedule cannot run to the end.
    """

    def __init__(self, schedule: Schedule, worker: int) -> None:
        dependencies, _ = require_order(schedule)
        actions, worker_of = dependencies.actions, dependencies.worker_of
        own = [index for index, owner in enumerate(worker_of) if owner == worker]
        self.worker = worker
        self._steps = tuple(
            Step(
                index - own[0],
                actions[index],
                tuple(
                    actions[need]
                    for need in dependencies.needs[index]
                    if worker_of[need] == worker
                    and RULES[actions[need].kind].stream is not Stream.COMPUTE
                ),
            )
            for index in own
        )
        self.braids = {
            second - own[0]: first - own[0]
            for first, second in dependencies.braids
            if worker_of[first] == worker
        }
        self._peer_worker = {
            actions[index]: worker_of[dependencies.match[index]]
            for index in own
            if dependencies.match[index] >= 0
        }
        self._members = {
            actions[index]: tuple(worker_of[member] for member in group)
            for group in dependencies.collectives
            for index in group
            if worker_of[index] == worker
        }

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    def peer_worker(self, action: Action) -> int:
        """The worker at the other end of one of this worker's messages."""
        return self._peer_worker[action]

    def members(self, action: Action) -> tuple[int, ...]:
        """The workers of one of this worker's collectives, in ascending order."""
        return self._members[action]
