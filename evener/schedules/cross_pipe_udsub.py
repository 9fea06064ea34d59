"""CrossPipe UDSub: every worker's block of layers is cut into sub-blocks that can be interleaved.

Chen et al., "CrossPipe: Towards Optimal Pipeline Schedules for Cross-Datacenter Training", USENIX
ATC 2025 (arXiv 2507.00217), algorithm 1 (CrossUDSub).
"""

from evener.ir.schedule import Schedule
from evener.schedules.cross_pipe import cross_pipe_order, cross_pipe_peak
from evener.schedules.entry import PipelineTimes, ScheduleEntry, no_closed_form, no_slices
from evener.schedules.refusals import refuse
from evener.schedules.shape import ScheduleShape


def cross_pipe_udsub(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Follow the greedy order of CrossPipe with v neighbour stages on each worker.

    The stages of a worker are the sub-blocks of its block: nothing is sent between them, so that a
    microbatch crosses no more borders than in ``cross_pipe_ud``.  A worker can turn to another
    microbatch between two of them.  For ``times`` and memory see ``cross_pipe_order``.

    Raises ScheduleError for one chunk per worker, and if a cap has no room for one microbatch.
    Source: Chen et al. 2025, algorithm 1.
    """
    refuse("cross_pipe_udsub", shape, _no_sub_blocks)
    workers = [stage // shape.chunks_per_worker for stage in range(shape.num_stages)]
    return cross_pipe_order("cross_pipe_udsub", shape, times, workers=workers)


def _no_sub_blocks(shape: ScheduleShape) -> str | None:
    if shape.chunks_per_worker > 1:
        return no_slices(shape)
    return (
        "cuts what a worker holds into sub-blocks, but chunks_per_worker is 1; "
        "ask for 2 or more, or take cross_pipe_ud"
    )


CROSS_PIPE_UDSUB = ScheduleEntry(
    name="cross_pipe_udsub",
    cite="Chen et al., CrossPipe, USENIX ATC 2025, algorithm 1, UDSub",
    generator=cross_pipe_udsub,
    peak_in_flight=cross_pipe_peak,
    makespan_ns=no_closed_form,
    unsupported=_no_sub_blocks,
    peak_is_exact=False,
    adapted=cross_pipe_udsub,
)
