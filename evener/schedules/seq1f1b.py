"""Seq1F1B: 1F1B over slices of long sequences.

Sun et al., "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model
Training", NAACL 2025 (arXiv 2406.03488), section 3.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns
from evener.schedules.refusals import refuse, several_chunks_of_slices
from evener.schedules.shape import ScheduleShape
from evener.schedules.slices import one_f_one_b_of_slices


def seq1f1b(shape: ScheduleShape) -> Schedule:
    """Follow 1F1B with k slices per microbatch; backwards run last in first out over the slices.

    Worker w begins with p - w - 1 + k forwards, as many as it ever holds.  With tF and tB of one
    slice the bubble is (p-1)(tF+tB), 1/k of that of 1F1B, and worker 0 holds (k+p-1)/k
    microbatches; both exact if the slices take equally long (``planner.slicing.flop_balanced``).

    Raises ScheduleError for more than one chunk per worker.  Source: Sun et al. 2025, sec. 3.
    """
    refuse("seq1f1b", shape, several_chunks_of_slices)
    return one_f_one_b_of_slices("seq1f1b", shape, _peak_in_flight(shape))


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    p, k = shape.num_workers, shape.num_slices
    return tuple(min(shape.num_units, p - worker - 1 + k) for worker in range(p))


SEQ1F1B = ScheduleEntry(
    name="seq1f1b",
    cite="Sun et al., Seq1F1B, NAACL 2025, sec. 3",
    generator=seq1f1b,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
    unsupported=several_chunks_of_slices,
    slicer="flop_balanced",
)
