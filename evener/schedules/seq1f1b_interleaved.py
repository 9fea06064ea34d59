"""Interleaved Seq1F1B: slices go through several thin stages per worker.

Sun et al., "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model
Training", NAACL 2025 (arXiv 2406.03488), section 3.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns, supports_every_shape
from evener.schedules.interleaved import interleaved_order, interleaved_peak
from evener.schedules.shape import ScheduleShape


def seq1f1b_interleaved(shape: ScheduleShape) -> Schedule:
    """Run groups of slices through all chunks, one forward, one backward in turn.

    Worker w holds the stages w, p + w, 2p + w, ...  With tF and tB of one slice on one stage the
    bubble is (p-1)(tF+tB) where there are p slices or more.  Worker w holds
    2(p-1-w) + (v-1)g + k slices of a stage, where g is the number of slices of the largest group: p
    as in the paper, if k divides p and p divides mk.

    Source: Sun et al. 2025, sec. 3.
    """
    return interleaved_order("seq1f1b_interleaved", shape)


SEQ1F1B_INTERLEAVED = ScheduleEntry(
    name="seq1f1b_interleaved",
    cite="Sun et al., Seq1F1B, NAACL 2025, sec. 3",
    generator=seq1f1b_interleaved,
    peak_in_flight=interleaved_peak,
    makespan_ns=flushed_pipeline_ns,
    unsupported=supports_every_shape,
    slicer="flop_balanced",
)
