"""GPipe: all forwards, then all backwards.

Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
NeurIPS 2019, section 2.2 and figure 2c.
"""

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns
from evener.schedules.refusals import refuse_several_chunks, several_chunks
from evener.schedules.row import row
from evener.schedules.shape import ScheduleShape


def gpipe(shape: ScheduleShape) -> Schedule:
    """Run every forward, then every backward from the last microbatch to the first.

    Bubble (p-1)(tF+tB); every worker holds all m microbatches.  (The paper also recomputes the
    forward; that is a choice of memory, not of order.)

    Raises ScheduleError for more than one chunk per worker.  Source: Huang et al. 2019, sec. 2.2.
    """
    refuse_several_chunks("gpipe", shape)
    num_microbatches = shape.num_microbatches
    workers = tuple(
        (
            *row(stage, Kind.F, range(num_microbatches)),
            *row(stage, Kind.B, reversed(range(num_microbatches))),
        )
        for stage in range(shape.num_workers)
    )
    return Schedule("gpipe", shape.num_stages, num_microbatches, workers)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (shape.num_microbatches,) * shape.num_workers


GPIPE = ScheduleEntry(
    name="gpipe",
    cite="Huang et al., GPipe, NeurIPS 2019, sec. 2.2",
    generator=gpipe,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
    unsupported=several_chunks,
)
