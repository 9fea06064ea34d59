"""CrossPipe UD: one stage per worker, ordered for links that are slow to answer.

Chen et al., "CrossPipe: Towards Optimal Pipeline Schedules for Cross-Datacenter Training", USENIX
ATC 2025 (arXiv 2507.00217), algorithm 1.
"""

from evener.ir.schedule import Schedule
from evener.schedules.cross_pipe import cross_pipe_order, cross_pipe_peak
from evener.schedules.entry import PipelineTimes, ScheduleEntry, no_closed_form
from evener.schedules.refusals import refuse_several_chunks, several_chunks
from evener.schedules.shape import ScheduleShape


def cross_pipe_ud(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Follow the greedy order of CrossPipe with stage s on worker s.

    A microbatch crosses each border between workers once per direction, the least of the three
    placements, so this is the one for little bandwidth.  For ``times`` and memory see
    ``cross_pipe_order``.

    Raises ScheduleError for more than one chunk per worker, and if a cap has no room for one
    microbatch.  Source: Chen et al. 2025, algorithm 1 without sub-blocks.
    """
    refuse_several_chunks("cross_pipe_ud", shape)
    return cross_pipe_order("cross_pipe_ud", shape, times, workers=range(shape.num_workers))


CROSS_PIPE_UD = ScheduleEntry(
    name="cross_pipe_ud",
    cite="Chen et al., CrossPipe, USENIX ATC 2025, algorithm 1, UD",
    generator=cross_pipe_ud,
    peak_in_flight=cross_pipe_peak,
    makespan_ns=no_closed_form,
    unsupported=several_chunks,
    peak_is_exact=False,
    adapted=cross_pipe_ud,
)
