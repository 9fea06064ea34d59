"""From a generator's schedule to one that can be run: all passes in their order."""

from collections.abc import Sequence

from evener.ir.action import Kind
from evener.ir.passes.insert_messages import insert_messages
from evener.ir.passes.insert_reductions import insert_reductions
from evener.ir.passes.insert_step import insert_step
from evener.ir.passes.replay import Durations
from evener.ir.schedule import Schedule


def lower(
    schedule: Schedule,
    *,
    tied: Sequence[tuple[int, int]] = (),
    clip: bool = False,
    durations_ns: Durations | None = None,
) -> Schedule:
    """``insert_step``, then ``insert_messages``; see there for arguments and errors.

    Where the schedule has STEPs of its own, ``insert_reductions`` takes the place of the first.
    """
    insert = insert_reductions if Kind.STEP in schedule.kinds else insert_step
    stepped = insert(schedule, tied=tied, clip=clip, durations_ns=durations_ns)
    return insert_messages(stepped, durations_ns)
