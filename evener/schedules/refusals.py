"""What generators refuse, in words."""

from collections.abc import Callable

from evener.errors import ScheduleError
from evener.schedules.entry import no_slices
from evener.schedules.shape import ScheduleShape


def several_chunks(shape: ScheduleShape) -> str | None:
    """Say why a schedule of one stage per worker cannot have this shape; None if it can."""
    if shape.chunks_per_worker == 1:
        return no_slices(shape)
    return (
        f"holds one stage per worker, but chunks_per_worker is {shape.chunks_per_worker}; "
        "ask for 1 or take interleaved_one_f_one_b"
    )


def not_two_chunks(shape: ScheduleShape) -> str | None:
    """Say why a schedule that goes down the workers and back once cannot have this shape."""
    if shape.chunks_per_worker == 2:
        return no_slices(shape)
    return (
        "goes down the workers and back up once, so it holds two stages of every microbatch per "
        f"worker, but chunks_per_worker is {shape.chunks_per_worker}; ask for 2"
    )


def several_chunks_of_slices(shape: ScheduleShape) -> str | None:
    """Say why a schedule of slices with one stage per worker cannot have this shape."""
    if shape.chunks_per_worker == 1:
        return None
    return (
        f"holds one stage per worker, but chunks_per_worker is {shape.chunks_per_worker}; "
        "ask for 1 or take seq1f1b_interleaved"
    )


def refuse_several_chunks(name: str, shape: ScheduleShape) -> None:
    """Raise ScheduleError if the shape has more than one stage per worker."""
    refuse(name, shape, several_chunks)


def refuse(
    name: str, shape: ScheduleShape, unsupported: Callable[[ScheduleShape], str | None]
) -> None:
    """Raise ScheduleError if ``unsupported`` gives a reason against the shape."""
    reason = unsupported(shape)
    if reason is not None:
        raise ScheduleError(f"{name} cannot have this shape", (f"{name} {reason}",))


def check_max_in_flight(name: str, max_in_flight: int | None) -> None:
    """Raise ScheduleError if a limit of microbatches in flight leaves no room for a single one."""
    if max_in_flight is not None and max_in_flight < 1:
        raise ScheduleError(f"{name} cannot keep this limit", (_no_room(max_in_flight),))


def _no_room(max_in_flight: int) -> str:
    return (
        f"max_in_flight is {max_in_flight}, but at least 1 microbatch must be in flight; "
        "ask for 1 or more, or leave it out for the paper's own limit"
    )
