"""ZB-H1: a third of the bubble of 1F1B in the same memory.

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 2.1.
"""

from evener.ir.schedule import Schedule
from evener.schedules.delayed_weight import (
    delayed_weight_order,
    last_weight_gradient_ns,
    peak_of_every_worker,
    weight_fits_the_gaps,
)
from evener.schedules.entry import ScheduleEntry, StageTimes
from evener.schedules.refusals import check_max_in_flight, refuse_several_chunks, several_chunks
from evener.schedules.shape import ScheduleShape


def zb_h1(shape: ScheduleShape, *, max_in_flight: int | None = None) -> Schedule:
    """Follow 1F1B with a split backward; worker w puts W off by w microbatches.

    max_in_flight: the most microbatches that a worker may hold until their W; fewer than p cost
        time, more have no effect (``zb_h2`` uses them).

    Every worker holds at most p microbatches.  Bubble (p-1)(tF+tI-tW) for m >= p, and
    (p-1)(tF+tI) - (m-1)tW for m < p, where there are not more W to fill it with; exact as long as
    tW <= tF and tW <= tI.  With equal stages never slower than 1F1B with W right after I.

    Raises ScheduleError for more than one chunk per worker and for a limit below 1.
    Source: Qi et al. 2024, sec. 2.1.
    """
    refuse_several_chunks("zb_h1", shape)
    check_max_in_flight("zb_h1", max_in_flight)
    limit = shape.num_workers if max_in_flight is None else min(max_in_flight, shape.num_workers)
    return delayed_weight_order("zb_h1", shape, max_in_flight=limit)


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    if not weight_fits_the_gaps(times):
        return None
    return last_weight_gradient_ns(shape, times, max_in_flight=shape.num_workers)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return peak_of_every_worker(shape, max_in_flight=shape.num_workers)


ZB_H1 = ScheduleEntry(
    name="zb_h1",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, sec. 2.1",
    generator=zb_h1,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=several_chunks,
)
