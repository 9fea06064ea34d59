"""From the times that each worker noted to one timeline."""

import os
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median_low
from typing import TypeAlias

from evener.executor.clock import Clock, WallClock
from evener.executor.transport import Transport
from evener.ir.action import Kind
from evener.ir.dependencies import resolve
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline

StepTimes: TypeAlias = "tuple[array[int], array[int]]"
"""Starts and ends of one worker's actions in one step, in list order."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NUM_PINGS = 11


def note_times(clock: Clock) -> StepTimes:
    """A copy of what the clock holds, to be taken after a step and before the next."""
    return clock.start_ns[:], clock.end_ns[:]


def join_times(schedule: Schedule, parts: Sequence[StepTimes], *, source: str) -> Timeline:
    """One timeline that begins at 0, of times that are comparable between workers as they are.

    parts: of every worker, by worker.
    """
    start_ns, end_ns = array("q"), array("q")
    for starts, ends in parts:
        start_ns += starts
        end_ns += ends
    origin_ns = min(start_ns, default=0)
    for times in (start_ns, end_ns):
        for index in range(len(times)):
            times[index] -= origin_ns
    return Timeline(source, schedule, start_ns, end_ns)


def gather_timeline(
    transport: Transport, schedule: Schedule, clock: WallClock, offset_ns: int
) -> Timeline:
    """The step that was run last, of all workers and on all of them: a collective over all.

    A message starts when its sender issued it and ends when its receiver took it, since neither
    gloo nor NCCL tells when it was on its way.

    offset_ns: how much this worker's clock is ahead of worker 0's, see ``clock_offset_ns``.
    """
    own = tuple(array("q", (ns - offset_ns for ns in times)) for times in note_times(clock))
    timeline = join_times(schedule, transport.gather(own), source="measured")
    dependencies = resolve(schedule)
    start_ns, end_ns = timeline.start_ns, timeline.end_ns
    for index, partner in enumerate(dependencies.match):
        if partner >= 0 and dependencies.actions[index].kind in (Kind.SEND_F, Kind.SEND_B):
            start_ns[partner] = start_ns[index]
            # An estimated offset must not let a message arrive before it was sent.
            end_ns[index] = end_ns[partner] = max(start_ns[index], end_ns[partner])
    return timeline


def this_machine() -> str:
    """A name that processes share if and only if they share CLOCK_MONOTONIC."""
    return _BOOT_ID.read_text() if _BOOT_ID.exists() else f"process {os.getpid()}"


def clock_offset_ns(
    transport: Transport,
    *,
    machine: str | None = None,
    now_ns: Callable[[], int] = time.monotonic_ns,
) -> int:
    """How much this worker's clock is ahead of worker 0's; a collective over all.

    Workers of one machine share the clock.  Of another machine it is the median over some
    barriers of the difference between the times at which they were left: as good as barriers are
    sharp, some ten microseconds to a millisecond.

    machine: where this worker runs; by default ``this_machine()``.
    """
    machine = this_machine() if machine is None else machine
    machines = transport.gather(machine)
    if len(set(machines)) == 1:
        return 0
    ahead_ns = []
    for _ in range(_NUM_PINGS):
        transport.barrier()
        left_ns = now_ns()
        ahead_ns.append(left_ns - transport.gather(left_ns)[0])
    return 0 if machine == machines[0] else median_low(ahead_ns)
