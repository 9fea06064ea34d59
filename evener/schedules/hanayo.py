"""Hanayo: every microbatch runs down the workers and back up in waves.

Liu et al., "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model Training
Efficiency", SC 2023 (arXiv 2308.15762), section 3.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, StageTimes, no_slices
from evener.schedules.refusals import refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_placement import zigzag_workers
from evener.schedules.wave_timetable import WaveTimetable


def hanayo(shape: ScheduleShape) -> Schedule:
    """Run units of p microbatches through W waves, W being half the chunks per worker.

    Bubble of one unit: 2(p-1) max(tF,tB) of a stage, so it halves when the same layers are cut in
    twice as many waves; with tB = tF it is (p-1)/(2Wm+p-1) of the step, for every multiple m of p.
    Between two units 2(p-1)|tB-tF| is idle.

    Raises ScheduleError for an odd number of chunks per worker.  Source: Liu et al. 2023, sec. 3.
    """
    refuse("hanayo", shape, _no_whole_waves)
    return _timetable(shape).schedule("hanayo")


def _timetable(shape: ScheduleShape) -> WaveTimetable:
    return WaveTimetable(shape, (zigzag_workers(shape.num_workers, shape.num_stages),))


def _no_whole_waves(shape: ScheduleShape) -> str | None:
    if shape.chunks_per_worker % 2 == 0:
        return no_slices(shape)
    return (
        "holds two stages per worker and wave, but chunks_per_worker is "
        f"{shape.chunks_per_worker}; ask for 2, 4 or 8 for one, two or four waves"
    )


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    return _timetable(shape).makespan_ns(times)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return _timetable(shape).peak_in_flight()


HANAYO = ScheduleEntry(
    name="hanayo",
    cite="Liu et al., Hanayo, SC 2023, sec. 3",
    generator=hanayo,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=_no_whole_waves,
)
