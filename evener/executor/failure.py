"""Where a rank is, and the sentences that say where and how it failed."""

from dataclasses import dataclass

from evener.errors import ExecutionError
from evener.ir.action import Action
from evener.ir.schedule import CELL_KINDS


@dataclass(frozen=True)
class Place:
    """What a rank is doing: an action, and perhaps a receive or collective that it waits for.

    Both are None outside of a step.
    """

    rank: int
    action: Action | None = None
    awaited: Action | None = None


class Progress:
    """The place of a rank, written by its loop and read by its watch.

    step: number of steps begun, so that two steps of one action each can be told apart.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.step = 0
        self.action: Action | None = None
        self.awaited: Action | None = None

    @property
    def place(self) -> Place:
        return Place(self.rank, self.action, self.awaited)


def failed(place: Place, error: BaseException) -> ExecutionError:
    """The error of a rank whose code raised."""
    return _error(place, f"failed {_where(place)}: {type(error).__name__}: {error}")


def lost(place: Place) -> ExecutionError:
    """The error of a rank whose process has gone without a word."""
    return _error(place, f"was lost; it was last heard of {_where(place)}")


def hangs(place: Place, seconds: float) -> ExecutionError:
    """The error of a rank that makes no progress."""
    return _error(place, f"hangs {_where(place)}: no progress for {seconds:g} s")


def interrupted(rank: int) -> str:
    """What is said of a rank that somebody stopped with Ctrl-C: no error, and no fault of it."""
    return f"rank {rank} was interrupted"


def _error(place: Place, what: str) -> ExecutionError:
    action = place.action
    return ExecutionError(
        f"rank {place.rank} {what}",
        rank=place.rank,
        stage=None if action is None else action.stage,
        microbatch=_microbatch(action),
        action=None if action is None else str(action),
    )


def _where(place: Place) -> str:
    action = place.action
    if action is None:
        return "outside of a step"
    text = f"in {action} (stage {action.stage}"
    if _microbatch(action) is not None:
        text += f", microbatch {_microbatch(action)}"
    text += ")"
    if place.awaited is not None:
        text += f", waiting for {place.awaited}"
    return text


def _microbatch(action: Action | None) -> int | None:
    """None for what has none; an action on a whole stage names its update in its place."""
    return action.microbatch if action is not None and action.kind in CELL_KINDS else None
