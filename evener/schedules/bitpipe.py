"""BitPipe: two V-shaped pipelines over the same workers in opposite directions.

Wu et al., "BitPipe: Bidirectional Interleaved Pipeline Parallelism for Accelerating Large Models
Training", 2024 (arXiv 2410.19367), section 3.

The gradients of a stage are added up between its two workers right after its last backward
(``ir.passes`` writes the REDUCE there), as the eager synchronisation of the paper does.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, StageTimes
from evener.schedules.refusals import not_two_chunks, refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_placement import zigzag_workers
from evener.schedules.wave_timetable import WaveTimetable, both_ways


def bitpipe(shape: ScheduleShape) -> Schedule:
    """Send half of the microbatches down and up a V, and half through its mirror image.

    Worker w holds the stages w and 2p-1-w of one V and p-1-w and p+w of the other.  Bubble of p
    microbatches on an even number of workers: (p-2) max(tF,tB), which with tB = 2tF is
    (p-2)/(3m+p-2) of the step.  Before its first backward worker w runs p + p/2 + min(w, p-1-w)
    forwards.  More microbatches are concatenated in units of p; between two units (p-2)|tB-tF| is
    idle.  An odd number of workers, which the paper leaves out, works too.

    Raises ScheduleError unless there are two chunks per worker.  Source: Wu et al. 2024, sec. 3.
    """
    refuse("bitpipe", shape, not_two_chunks)
    return _timetable(shape).schedule("bitpipe")


def _timetable(shape: ScheduleShape) -> WaveTimetable:
    return WaveTimetable(shape, both_ways(zigzag_workers(shape.num_workers, shape.num_stages)))


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    return _timetable(shape).makespan_ns(times)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return _timetable(shape).peak_in_flight()


BITPIPE = ScheduleEntry(
    name="bitpipe",
    cite="Wu et al., BitPipe, 2024 (arXiv 2410.19367), sec. 3",
    generator=bitpipe,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    stage_copies=2,
    unsupported=not_two_chunks,
)
