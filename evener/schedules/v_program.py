"""Schedules that are written as one program per worker of a V, run phase by phase.

Every worker holds two stages of a V over p workers: chunk 0 on the way down, chunk 1 on the way
back up.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.shape import ScheduleShape


class VProgram:
    """The list of one worker while it is written.

    Every call takes the next microbatch of its chunk.
    """

    def __init__(self, worker: int, num_workers: int, num_microbatches: int) -> None:
        self.worker = worker
        self.num_workers = num_workers
        self.num_microbatches = num_microbatches
        self.actions: list[Action] = []
        self.braids: list[tuple[Action, Action]] = []
        self._stages = (worker, 2 * num_workers - 1 - worker)
        self._num_forward = [0, 0]
        self._num_backward = [0, 0]
        self._put_off: deque[Action] = deque()

    @property
    def num_put_off(self) -> int:
        """How many W are still owed."""
        return len(self._put_off)

    @contextmanager
    def braid(self) -> Iterator[None]:
        """Braid the two actions written inside; a single one stays alone."""
        first = len(self.actions)
        yield
        if len(self.actions) == first + 2:
            self.braids.append((self.actions[first], self.actions[-1]))

    def forwards_left(self, chunk: int) -> int:
        return self.num_microbatches - self._num_forward[chunk]

    def forward(self, chunk: int) -> None:
        """The next F; nothing when all are done."""
        if self.forwards_left(chunk):
            self.actions.append(Action(self._stages[chunk], Kind.F, self._num_forward[chunk]))
            self._num_forward[chunk] += 1

    def backward(self, chunk: int) -> None:
        """The next B."""
        self.actions.append(Action(self._stages[chunk], Kind.B, self._num_backward[chunk]))
        self._num_backward[chunk] += 1

    def input_grad(self, chunk: int) -> None:
        """The next I; its W is put off."""
        microbatch = self._num_backward[chunk]
        self.actions.append(Action(self._stages[chunk], Kind.I, microbatch))
        self._put_off.append(Action(self._stages[chunk], Kind.W, microbatch))
        self._num_backward[chunk] += 1

    def back(self, chunk: int, *, put_off: bool) -> None:
        """The next backward, whole or without its W."""
        if put_off:
            self.input_grad(chunk)
        else:
            self.backward(chunk)

    def weight_grad(self) -> None:
        """The W that has been put off longest; nothing when none is owed."""
        if self._put_off:
            self.actions.append(self._put_off.popleft())


def v_schedule(name: str, shape: ScheduleShape, write: Callable[[VProgram], None]) -> Schedule:
    """Let ``write`` fill every worker's program.

    The papers ask for 2p microbatches or more.  Fewer run in the order of 2p, in which those that
    are not there are left out: what remains is still in an order that ends.
    """
    m = shape.num_microbatches
    workers = []
    braids = set()
    for worker in range(shape.num_workers):
        program = VProgram(worker, shape.num_workers, max(m, 2 * shape.num_workers))
        write(program)
        assert not program.num_put_off, f"{name}: worker {worker} leaves W undone"
        workers.append(tuple(a for a in program.actions if a.microbatch in range(m)))
        braids |= {a for a, b in program.braids if {a.microbatch, b.microbatch} <= set(range(m))}
    return Schedule(name, shape.num_stages, m, tuple(workers), braids=frozenset(braids))
