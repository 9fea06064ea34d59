"""Chimera: two pipelines over the same workers in opposite directions.

Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional
Pipelines", SC 2021 (arXiv 2107.06925), sections 3.1 and 3.5.

The gradients of a stage are added up between its two workers right after its last backward
(``ir.passes`` writes the REDUCE there), as the eager synchronisation of section 3.2 does.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, StageTimes, no_slices
from evener.schedules.refusals import refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.wave_timetable import WaveTimetable, both_ways


def chimera(shape: ScheduleShape) -> Schedule:
    """Send half of the microbatches from the first worker down and half from the last one up.

    Worker w holds stage w and stage p-1-w.  Bubble of p microbatches on an even number of workers:
    (p-2) max(tF,tB), which with tB = tF is (p-2)/(2m+p-2) of the step.  More microbatches are
    concatenated in units of p; as long as tB = tF nothing is idle between two units, otherwise
    (p-2)|tB-tF| per unit is (the paper's forward doubling and backward halving, which avoid that,
    are not done).  An odd number of workers, which the paper leaves out, works too: the middle one
    then runs the same stage of both pipelines.

    Raises ScheduleError for more than one chunk per worker.
    Source: Li and Hoefler 2021, sec. 3.1, 3.5.
    """
    refuse("chimera", shape, _several_chunks)
    return _timetable(shape).schedule("chimera")


def _timetable(shape: ScheduleShape) -> WaveTimetable:
    return WaveTimetable(shape, both_ways(tuple(range(shape.num_workers))))


def _several_chunks(shape: ScheduleShape) -> str | None:
    if shape.chunks_per_worker == 1:
        return no_slices(shape)
    return (
        "holds one stage of each direction per worker, but chunks_per_worker is "
        f"{shape.chunks_per_worker}; ask for 1, or take bitpipe for 2"
    )


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    return _timetable(shape).makespan_ns(times)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return _timetable(shape).peak_in_flight()


CHIMERA = ScheduleEntry(
    name="chimera",
    cite="Li and Hoefler, Chimera, SC 2021, sec. 3.1",
    generator=chimera,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    stage_copies=2,
    unsupported=_several_chunks,
)
