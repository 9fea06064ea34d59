"""The sizes that a schedule generator needs to know."""

from dataclasses import dataclass

from evener.errors import ScheduleError


@dataclass(frozen=True)
class ScheduleShape:
    """How many workers, microbatches, chunks and slices a regular schedule has.

    num_workers: workers of one pipeline, in the order of their first stage.
    num_microbatches: microbatches of one optimizer update.
    chunks_per_worker: stages of one microbatch that each worker runs; which ones, the schedule
        decides.
    num_slices: runs of tokens into which every microbatch is cut; 1 means that it is not.
    num_updates: updates between two flushes; more than one in asynchronous schedules alone.

    Raises ScheduleError that names every size below 1.
    """

    num_workers: int
    num_microbatches: int
    chunks_per_worker: int = 1
    num_slices: int = 1
    num_updates: int = 1

    def __post_init__(self) -> None:
        wrong = tuple(
            _too_small(name, size)
            for name, size in (
                ("num_workers", self.num_workers),
                ("num_microbatches", self.num_microbatches),
                ("chunks_per_worker", self.chunks_per_worker),
                ("num_slices", self.num_slices),
                ("num_updates", self.num_updates),
            )
            if size < 1
        )
        if wrong:
            raise ScheduleError("no schedule has this shape", wrong)

    @property
    def num_stages(self) -> int:
        return self.num_workers * self.chunks_per_worker

    @property
    def num_units(self) -> int:
        """What goes through every stage one after the other: microbatches, or their slices."""
        return self.num_microbatches * self.num_slices


def _too_small(name: str, size: int) -> str:
    return f"{name} is {size}, but a schedule needs at least 1; ask for 1 or more"
