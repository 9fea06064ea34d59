"""CrossPipe Wave: the stages go down the workers and back up, ordered for links slow to answer.

Chen et al., "CrossPipe: Towards Optimal Pipeline Schedules for Cross-Datacenter Training", USENIX
ATC 2025 (arXiv 2507.00217), algorithm 1.
"""

from evener.ir.schedule import Schedule
from evener.schedules.cross_pipe import cross_pipe_order, cross_pipe_peak
from evener.schedules.entry import PipelineTimes, ScheduleEntry, no_closed_form
from evener.schedules.refusals import not_two_chunks, refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_placement import zigzag_workers


def cross_pipe_wave(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Follow the greedy order of CrossPipe on a V.

    Thinner stages shorten the ramps, but a microbatch crosses each border twice per direction: the
    fastest of the three placements where links have bandwidth, the slowest where not.  For
    ``times`` and memory see ``cross_pipe_order``.

    Raises ScheduleError unless there are two chunks per worker, and if a cap has no room for one
    microbatch.  Source: Chen et al. 2025, algorithm 1.
    """
    refuse("cross_pipe_wave", shape, not_two_chunks)
    workers = zigzag_workers(shape.num_workers, shape.num_stages)
    return cross_pipe_order("cross_pipe_wave", shape, times, workers=workers)


CROSS_PIPE_WAVE = ScheduleEntry(
    name="cross_pipe_wave",
    cite="Chen et al., CrossPipe, USENIX ATC 2025, algorithm 1, Wave",
    generator=cross_pipe_wave,
    peak_in_flight=cross_pipe_peak,
    makespan_ns=no_closed_form,
    unsupported=not_two_chunks,
    peak_is_exact=False,
    adapted=cross_pipe_wave,
)
