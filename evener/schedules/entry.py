"""What is known about a schedule besides its order: where it comes from and what it promises."""

from collections.abc import Callable
from dataclasses import dataclass

from evener.ir.schedule import Schedule
from evener.schedules.shape import ScheduleShape


@dataclass(frozen=True)
class StageTimes:
    """Nanoseconds of one microbatch on one stage, the same for all stages.

    input_grad_ns, weight_grad_ns: the two halves of the backward; a full backward takes their sum.
    """

    forward_ns: int
    input_grad_ns: int
    weight_grad_ns: int

    @property
    def backward_ns(self) -> int:
        return self.input_grad_ns + self.weight_grad_ns


def flushed_pipeline_ns(shape: ScheduleShape, times: StageTimes) -> int:
    """Step time of a pipeline that fills and drains once: (m + p - 1)(tF + tB)."""
    slots = shape.num_microbatches + shape.num_workers - 1
    return slots * (times.forward_ns + times.backward_ns)


def supports_every_shape(shape: ScheduleShape) -> str | None:
    """Never a reason against: for schedules that accept every shape."""
    del shape
    return None


@dataclass(frozen=True)
class ScheduleEntry:
    """One schedule as the planner, the command line and the conformance suite see it.

    name: how it is asked for; the name of the paper.
    cite: paper and section.
    generator: shape -> compute-only schedule; raises ScheduleError for an unsupported shape.
    peak_in_flight: shape -> per worker, the exact maximum of (stage, microbatch) pairs whose
        forward was issued and whose last backward action has not ended.
    makespan_ns: (shape, times) -> the exact step time when all stages take the same times and
        messages take none; None where the paper's formula does not hold.
    unsupported: shape -> the reason why the generator refuses it and the way out, or None.
    """

    name: str
    cite: str
    generator: Callable[[ScheduleShape], Schedule]
    peak_in_flight: Callable[[ScheduleShape], tuple[int, ...]]
    makespan_ns: Callable[[ScheduleShape, StageTimes], int | None]
    unsupported: Callable[[ScheduleShape], str | None] = supports_every_shape

    def __call__(self, shape: ScheduleShape) -> Schedule:
        return self.generator(shape)
