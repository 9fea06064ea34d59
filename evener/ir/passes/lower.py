"""From a generator's schedule to one that can be run: all passes in their order."""

from collections.abc import Sequence

from evener.ir.passes.insert_messages import insert_messages
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
    """``insert_step``, then ``insert_messages``; see there for arguments and errors."""
    stepped = insert_step(schedule, tied=tied, clip=clip, durations_ns=durations_ns)
    return insert_messages(stepped, durations_ns)
