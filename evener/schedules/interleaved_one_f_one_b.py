"""Interleaved 1F1B: every worker holds several thin stages, which divides the bubble.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, section 2.2.2.

The paper asks for a multiple of p microbatches.  Here any number works: microbatches are dealt to
groups of at least p (``interleaved``).
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns, no_slices
from evener.schedules.interleaved import interleaved_order, interleaved_peak
from evener.schedules.refusals import refuse
from evener.schedules.shape import ScheduleShape


def interleaved_one_f_one_b(shape: ScheduleShape) -> Schedule:
    """Run groups of microbatches through all chunks, one forward, one backward in turn.

    Worker w holds the stages w, p + w, 2p + w, ...  With tF and tB of one stage the bubble is
    (p-1)(tF+tB), that is 1/v of the bubble of 1F1B over the same layers, for every m >= p.
    Worker w holds 2(p-1-w) + (v-1)g + 1 pairs of stage and microbatch, where g is the size of the
    largest group: p as in the paper if p divides m, at most 2p - 1 otherwise.

    Raises ScheduleError for slices.  Source: Narayanan et al. 2021, sec. 2.2.2.
    """
    refuse("interleaved_one_f_one_b", shape, no_slices)
    return interleaved_order("interleaved_one_f_one_b", shape)


INTERLEAVED_ONE_F_ONE_B = ScheduleEntry(
    name="interleaved_one_f_one_b",
    cite="Narayanan et al., Megatron-LM, SC 2021, sec. 2.2.2",
    generator=interleaved_one_f_one_b,
    peak_in_flight=interleaved_peak,
    makespan_ns=flushed_pipeline_ns,
)
