"""Prove a schedule without running it, or say all that is wrong with it."""

from collections.abc import Sequence

from evener.errors import ScheduleError
from evener.ir.dependencies import resolve
from evener.ir.memory import MemoryTable
from evener.ir.memory_caps import over_caps
from evener.ir.order import deadlock_text, find_order
from evener.ir.schedule import Schedule
from evener.ir.structure import structure_violations

# A schedule that is wrong everywhere is not explained better by ten thousand lines.
_MAX_SHOWN = 40


def check(
    schedule: Schedule,
    *,
    memory: MemoryTable | None = None,
    cap_bytes: Sequence[int] | None = None,
    forward_only: bool = False,
) -> None:
    """Raise ScheduleError with the violations of a schedule, if it has any; see ``violations``."""
    found = violations(schedule, memory=memory, cap_bytes=cap_bytes, forward_only=forward_only)
    if len(found) > _MAX_SHOWN:
        found[_MAX_SHOWN:] = [f"... and {len(found) - _MAX_SHOWN} more"]
    if found:
        raise ScheduleError(f"schedule {schedule.name} is not legal", found)


def violations(
    schedule: Schedule,
    *,
    memory: MemoryTable | None = None,
    cap_bytes: Sequence[int] | None = None,
    forward_only: bool = False,
) -> list[str]:
    """All that is wrong, as sentences; empty if the schedule is legal.

    memory, cap_bytes: sizes, and what each worker may hold; both or none.
    forward_only: every cell is to be run forward only, as in evaluation.

    A legal schedule covers every (stage, microbatch, slice) once, sends and receives what it needs
    and nothing else, lets exactly the members take part in each collective, stays under the caps,
    and cannot deadlock on any transport that keeps the order of each pair of workers.  Order is
    looked at only where the rest is right, as nothing can be followed otherwise.
    """
    found = structure_violations(schedule, forward_only=forward_only)
    if found:
        return found
    dependencies = resolve(schedule)
    found = [missing.text for missing in dependencies.missing]
    if not found:
        order = find_order(dependencies)
        if order.cycle:
            found.append(deadlock_text(order))
    if memory is not None and cap_bytes is not None:
        found += over_caps(schedule, memory, cap_bytes)
    return found
