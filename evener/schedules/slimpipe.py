"""SlimPipe: 1F1B over equal slices with about one microbatch alive.

"SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM Training", SC 2025
(arXiv 2504.14519).
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns
from evener.schedules.refusals import refuse, several_chunks_of_slices
from evener.schedules.shape import ScheduleShape
from evener.schedules.slices import one_f_one_b_of_slices


def slimpipe(shape: ScheduleShape) -> Schedule:
    """Follow 1F1B with n equal slices per microbatch, and room for messages to be on their way.

    Worker w holds at most n + 2(p-1-w) slices, worker 0 so (1 + 2(p-1)/n) microbatches of its
    stage.  With slices that take equally long the bubble is (p-1)/(n m+p-1) of the step.  The paper
    asks for a multiple of p slices; any number works.  Its exchange of attention context, which
    makes equal slices equally long, and its vocabulary parallel head are not part of the order.

    Raises ScheduleError for more than one chunk per worker.  Source: SlimPipe, SC 2025.
    """
    refuse("slimpipe", shape, several_chunks_of_slices)
    return one_f_one_b_of_slices("slimpipe", shape, _peak_in_flight(shape))


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    p, n = shape.num_workers, shape.num_slices
    return tuple(min(shape.num_units, n + 2 * (p - 1 - worker)) for worker in range(p))


SLIMPIPE = ScheduleEntry(
    name="slimpipe",
    cite="SlimPipe, SC 2025 (arXiv 2504.14519)",
    generator=slimpipe,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
    unsupported=several_chunks_of_slices,
    slicer="uniform",
)
