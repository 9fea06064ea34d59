"""Where a worker is expected to wait, for how long, and what it does meanwhile."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from evener.executor.clock import WallClock
from evener.executor.side_tasks import SideTasks
from evener.ir.action import Action, Kind
from evener.ir.passes.replay import takes_time
from evener.ir.timeline import Timeline


def is_main(action: Action) -> bool:
    """Whether the action holds the worker and is no side work."""
    return takes_time(action.kind) and action.kind is not Kind.X


def bubbles_before(expected: Timeline, worker: int) -> dict[Action | None, int]:
    """How many nanoseconds a worker is expected to wait before each main action.

    expected: of a lowered schedule; its side work counts as waiting.
    None stands for the end of the step.
    """
    lengths_ns: dict[Action | None, int] = {}
    free_ns = min(expected.start_ns, default=0)
    for action, start_ns, end_ns in expected.spans(worker):
        if is_main(action):
            lengths_ns[action] = start_ns - free_ns
            free_ns = end_ns
    lengths_ns[None] = max(expected.end_ns, default=0) - free_ns
    return lengths_ns


def harvests(
    actions: Sequence[Action],
    clock: WallClock,
    *,
    tasks: SideTasks,
    bubbles_ns: Mapping[Action | None, int],
) -> dict[int, Callable[[], None]]:
    """By position in a worker's list, how to run its side tasks until its bubble ends.

    Bubbles begin when the main action before has ended.  See ``Loop``.
    """
    idle: dict[int, Callable[[], None]] = {}
    last: int | None = None
    for position, action in enumerate(actions):
        if is_main(action):
            if bubbles_ns.get(action, 0) > 0:
                idle[position] = partial(_harvest, tasks, clock, last, bubbles_ns[action])
            last = position
    if bubbles_ns.get(None, 0) > 0:
        idle[len(actions)] = partial(_harvest, tasks, clock, last, bubbles_ns[None])
    return idle


def _harvest(tasks: SideTasks, clock: WallClock, after: int | None, length_ns: int) -> None:
    begin_ns = time.monotonic_ns() if after is None else clock.end_ns[after]
    tasks.run_in(begin_ns, begin_ns + length_ns)
