"""What is known about a schedule besides its order: where it comes from and what it promises."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from evener.errors import ScheduleError
from evener.ir.schedule import Schedule
from evener.schedules.shape import ScheduleShape


@dataclass(frozen=True)
class StageTimes:
    """Nanoseconds of one microbatch, or one slice of it, on one stage, the same for all of them.

    input_grad_ns, weight_grad_ns: the two halves of the backward; a full backward takes their sum.
    """

    forward_ns: int
    input_grad_ns: int
    weight_grad_ns: int

    @property
    def backward_ns(self) -> int:
        return self.input_grad_ns + self.weight_grad_ns

    def part(self, num_parts: int) -> "StageTimes":
        """One of so many equal parts, rounded down."""
        return StageTimes(
            self.forward_ns // num_parts,
            self.input_grad_ns // num_parts,
            self.weight_grad_ns // num_parts,
        )


@dataclass(frozen=True)
class PipelineTimes:
    """What a schedule that adapts to costs knows of them: times and bytes of one microbatch.

    forward_ns, input_grad_ns, weight_grad_ns: per stage.
    forward_message_ns, backward_message_ns: per pair of neighbour stages (s, s + 1), the whole
        time of an activation from s to s + 1 and of its gradient back; not used where both are on
        one worker.
    activation_bytes: per stage, held from F until B or I has ended.
    weight_gradient_bytes: per stage, held from I until W has ended.
    cap_bytes: per worker, the most that may be held of these two together; None means no limit.
    """

    forward_ns: tuple[int, ...]
    input_grad_ns: tuple[int, ...]
    weight_grad_ns: tuple[int, ...]
    forward_message_ns: tuple[int, ...]
    backward_message_ns: tuple[int, ...]
    activation_bytes: tuple[int, ...]
    weight_gradient_bytes: tuple[int, ...]
    cap_bytes: tuple[int, ...] | None = None

    @classmethod
    def equal(cls, num_stages: int, times: StageTimes, *, message_ns: int = 0) -> "PipelineTimes":
        """Equal stages that hold one byte from F until the backward has ended; no cap."""
        one, messages = (1,) * num_stages, (message_ns,) * (num_stages - 1)
        return cls(
            forward_ns=(times.forward_ns,) * num_stages,
            input_grad_ns=(times.input_grad_ns,) * num_stages,
            weight_grad_ns=(times.weight_grad_ns,) * num_stages,
            forward_message_ns=messages,
            backward_message_ns=messages,
            activation_bytes=one,
            weight_gradient_bytes=one,
        )


UNIT_TIMES = StageTimes(1, 1, 1)


def flushed_pipeline_ns(shape: ScheduleShape, times: StageTimes) -> int:
    """Step time of a pipeline that fills and drains once: (vm + p - 1)(tF + tB) for m >= p.

    Where microbatches are cut, m counts slices.  With m < p a round through the workers starts
    only when its first microbatch is back at worker 0: (vp + m - 1)(tF + tB).
    """
    p, m, v = shape.num_workers, shape.num_units, shape.chunks_per_worker
    return (v * max(m, p) + min(m, p) - 1) * (times.forward_ns + times.backward_ns)


def no_closed_form(shape: ScheduleShape, times: StageTimes) -> None:
    """Never a formula: for schedules whose order is searched."""
    del shape, times


def no_slices(shape: ScheduleShape) -> str | None:
    """Say why a schedule of whole microbatches cannot have this shape; None if it can."""
    if shape.num_slices == 1:
        return None
    return f"cuts no microbatches, but num_slices is {shape.num_slices}; ask for 1 or take seq1f1b"


def supports_every_shape(shape: ScheduleShape) -> str | None:
    """Never a reason against: for schedules of slices that accept every shape."""
    del shape
    return None


@dataclass(frozen=True)
class ScheduleEntry:
    """One schedule as the planner, the command line and the conformance suite see it.

    name: how it is asked for; the name of the paper.
    cite: paper and section.
    generator: shape -> compute-only schedule; raises ScheduleError for an unsupported shape.
    peak_in_flight: shape -> per worker, the maximum of cells (stage, microbatch, slice) whose
        forward was issued and whose last backward action has not ended.
    makespan_ns: (shape, times) -> the exact step time when all stages take the same times and
        messages take none; None where the paper's formula does not hold.
    unsupported: shape -> the reason why the generator refuses it and the way out, or None.
    peak_is_exact: whether ``peak_in_flight`` is reached on every worker, or only never exceeded.
    stage_copies: the most workers that hold one stage: 2 where pipelines run in both directions.
    asynchronous: whether it can make several optimizer updates without a flush between them.
    adapted: (shape, times) -> the schedule for these costs, if it depends on costs; the generator
        then gives the one for unit times.
    slicer: how microbatches are to be cut, a name in ``planner.slicing``; None for schedules that
        do not cut them.
    """

    name: str
    cite: str
    generator: Callable[[ScheduleShape], Schedule]
    peak_in_flight: Callable[[ScheduleShape], tuple[int, ...]]
    makespan_ns: Callable[[ScheduleShape, StageTimes], int | None]
    unsupported: Callable[[ScheduleShape], str | None] = no_slices
    peak_is_exact: bool = True
    stage_copies: int = 1
    asynchronous: bool = False
    adapted: Callable[[ScheduleShape, PipelineTimes], Schedule] | None = None
    slicer: str | None = None

    def __call__(self, shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
        if shape.num_updates > 1 and not self.asynchronous:
            raise ScheduleError(f"{self.name} cannot have this shape", [_flushes(self.name, shape)])
        if self.adapted is not None and times is not None:
            return self.adapted(shape, times)
        return self.generator(shape)


def offered(entries: Iterable[ScheduleEntry], *, asynchronous: bool) -> list[ScheduleEntry]:
    """Those that a job may be given: asynchronous ones only if it asks for them."""
    return [entry for entry in entries if asynchronous or not entry.asynchronous]


def _flushes(name: str, shape: ScheduleShape) -> str:
    return (
        f"{name} flushes its pipeline at every update, but num_updates is {shape.num_updates}; ask "
        "for 1, or take an asynchronous schedule such as pipedream_2bw"
    )
