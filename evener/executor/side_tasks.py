"""Side tasks: work that has nothing to do with the training, done in its bubbles.

After FreeRide (Zhang et al., "FreeRide: Harvesting Bubbles in Pipeline Parallelism", arXiv
2409.06941, sections 4.2 and 4.5): a task is a state machine whose transitions call the user's
functions, and it makes a step only while enough of the bubble is left for one.  Unlike there, a
task runs in the worker's own thread while this waits for a message, so that it never takes the
processor from the training; a step cannot be interrupted, hence it should be short.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median_low
from types import TracebackType

from evener.errors import UsageError

RESERVE_PERCENT = 15
"""The part of a bubble in which no step may be expected to run, in case it ends early."""

_NUM_TRIALS = 3
_NUM_REMEMBERED = 9


class State(Enum):
    """Where a task stands. Tasks are done with their life in STOPPED, whatever brought them there.

    SUBMITTED: described. CREATED: its host memory is there. PAUSED: ready to run. RUNNING: in a
    bubble.
    """

    SUBMITTED = "submitted"
    CREATED = "created"
    PAUSED = "paused"
    RUNNING = "running"
    STOPPED = "stopped"


def _nothing() -> None:
    """A transition at which there is nothing to do."""


@dataclass(frozen=True)
class SideTask:
    """What a user gives: a name and the functions that are called in the worker's process.

    step: does a bounded piece of work; returns whether more is left.
    create, load, start, pause, stop: called on the way to CREATED (on the host), to PAUSED for the
        first time (on the device), to RUNNING, back to PAUSED, and to STOPPED.
    memory_bytes: what it holds on the device, for ``assign_side_tasks``.
    """

    name: str
    step: Callable[[], bool]
    create: Callable[[], None] = _nothing
    load: Callable[[], None] = _nothing
    start: Callable[[], None] = _nothing
    pause: Callable[[], None] = _nothing
    stop: Callable[[], None] = _nothing
    memory_bytes: int = 0


@dataclass(frozen=True)
class SideTaskReport:
    """What became of a task.

    num_steps, busy_ns: made in bubbles, and how long they took in all, transitions included.
    late_ns: by how much it went on beyond the expected ends of bubbles, in all.
    reason: why it was stopped, if not because it or the training had ended.
    """

    worker: int
    name: str
    state: State
    num_steps: int
    busy_ns: int
    late_ns: int
    reason: str | None = None


@dataclass
class _Life:
    """A task, its state and its record. step_ns: of the last steps."""

    task: SideTask
    state: State = State.SUBMITTED
    num_steps: int = 0
    busy_ns: int = 0
    late_ns: int = 0
    reason: str | None = None
    step_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_NUM_REMEMBERED))


class SideTasks:
    """The side tasks of one worker: ``with SideTasks(...) as tasks:`` around the training.

    They are created, loaded and tried out when it begins, run one after another in every bubble,
    and are stopped at the end.

    grace_ns: a task that goes on for longer beyond the end of a bubble is stopped for good.
    now_ns: the clock of the bubbles.

    A task whose function raises is stopped, and the training goes on.
    """

    def __init__(
        self,
        tasks: Sequence[SideTask],
        *,
        worker: int = 0,
        grace_ns: int = 1_000_000_000,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._lives = [_Life(task) for task in tasks]
        self._worker = worker
        self._grace_ns = grace_ns
        self._now_ns = now_ns

    def __enter__(self) -> "SideTasks":
        for life in self._lives:
            self._move(life, State.CREATED, life.task.create)
            self._move(life, State.PAUSED, life.task.load)
            self._move(life, State.RUNNING, life.task.start)
            for _ in range(_NUM_TRIALS):
                if life.state is State.RUNNING:
                    self._step(life)
            self._move(life, State.PAUSED, life.task.pause)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for life in self._lives:
            self._stop(life, None)

    def run_in(self, begin_ns: int, end_ns: int) -> None:
        """Make steps while they are expected to end in the bubble, some reserve before its end."""
        last_ns = end_ns - (end_ns - begin_ns) * RESERVE_PERCENT // 100
        for life in self._lives:
            if life.state is State.PAUSED and self._has_time(life, last_ns):
                self._run(life, last_ns, end_ns)

    @property
    def reports(self) -> tuple[SideTaskReport, ...]:
        """What became of each task so far."""
        return tuple(
            SideTaskReport(
                self._worker,
                life.task.name,
                life.state,
                life.num_steps,
                life.busy_ns,
                life.late_ns,
                life.reason,
            )
            for life in self._lives
        )

    def _has_time(self, life: _Life, last_ns: int) -> bool:
        return self._now_ns() + median_low(life.step_ns) <= last_ns

    def _run(self, life: _Life, last_ns: int, end_ns: int) -> None:
        begin_ns = self._now_ns()
        self._move(life, State.RUNNING, life.task.start)
        while life.state is State.RUNNING and self._has_time(life, last_ns):
            self._step(life)
            life.num_steps += 1
        self._move(life, State.PAUSED, life.task.pause)
        paused_ns = self._now_ns()
        life.busy_ns += paused_ns - begin_ns
        late_ns = max(0, paused_ns - end_ns)
        life.late_ns += late_ns
        if late_ns > self._grace_ns:
            self._stop(life, _too_late(late_ns, self._grace_ns))

    def _step(self, life: _Life) -> None:
        begin_ns = self._now_ns()
        try:
            is_left = life.task.step()
        except Exception as error:
            self._stop(life, _failed("step", error))
            return
        life.step_ns.append(self._now_ns() - begin_ns)
        if not is_left:
            self._stop(life, None)

    def _move(self, life: _Life, state: State, function: Callable[[], None]) -> None:
        if life.state is State.STOPPED:
            return
        try:
            function()
        except Exception as error:
            self._stop(life, _failed(f"the way to {state.value}", error))
        else:
            life.state = state

    def _stop(self, life: _Life, reason: str | None) -> None:
        if life.state is State.STOPPED:
            return
        was_created = life.state is not State.SUBMITTED
        life.state, life.reason = State.STOPPED, reason
        if was_created:
            try:
                life.task.stop()
            except Exception as error:
                life.reason = life.reason or _failed("stop", error)


def assign_side_tasks(
    tasks: Sequence[SideTask], free_bytes: Sequence[int]
) -> dict[int, tuple[SideTask, ...]]:
    """Give each task to the worker with the fewest tasks among those with memory left for it.

    free_bytes: per worker, what the training leaves at its peak. Ties go to the lower worker.

    Raises UsageError that names all tasks for which nobody has memory left.
    Source: section 4.5 of the paper.
    """
    left = list(free_bytes)
    given: dict[int, list[SideTask]] = {worker: [] for worker in range(len(left))}
    homeless = []
    for task in tasks:
        able = [worker for worker in given if left[worker] >= task.memory_bytes]
        if not able:
            homeless.append(_no_memory(task, max(left, default=0)))
            continue
        worker = min(able, key=lambda worker: len(given[worker]))
        given[worker].append(task)
        left[worker] -= task.memory_bytes
    if homeless:
        raise UsageError("no worker has memory left for all side tasks", homeless)
    return {worker: tuple(own) for worker, own in given.items() if own}


def _no_memory(task: SideTask, most_bytes: int) -> str:
    return (
        f"side task {task.name} needs {task.memory_bytes} bytes, the most that is left on a worker "
        f"is {most_bytes}; make it smaller, or leave it out"
    )


def _too_late(late_ns: int, grace_ns: int) -> str:
    return (
        f"it went on for {late_ns / 1e6:.1f} ms beyond the end of a bubble, {grace_ns / 1e6:g} ms "
        "are allowed; make its steps shorter"
    )


def _failed(where: str, error: Exception) -> str:
    return f"{where} raised {type(error).__name__}: {error}"
