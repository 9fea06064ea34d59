"""ZB-H2: no bubble at all on any worker, for twice the memory of 1F1B.

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 2.2.
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


def zb_h2(shape: ScheduleShape, *, max_in_flight: int | None = None) -> Schedule:
    """Fill the wait for the first backward with forwards and the last waits with W.

    max_in_flight: the most microbatches that a worker may hold until their W; the paper's 2p - 1
        if left out.  Between p and 2p - 1 it trades memory for bubble, at p it is ``zb_h1``.

    Every worker holds at most 2p - 1 microbatches.  Between its first and its last action it is
    never idle for m >= 2p - 1 and equal times tF = tI = tW; the workers start and end staggered.
    The step takes max(m(tF+tI+tW) + (p-1)(tF+tI-2tW), m(tF+tI+tW) + (p-1)tF), exact as long as
    tW <= tF and tW <= tI.  With fewer microbatches the limit shrinks to max(p, m): a forward that
    fills no wait would only put W into the critical path.

    Raises ScheduleError for more than one chunk per worker and for a limit below 1.
    Source: Qi et al. 2024, sec. 2.2.
    """
    refuse_several_chunks("zb_h2", shape)
    check_max_in_flight("zb_h2", max_in_flight)
    limit = _limit(shape) if max_in_flight is None else min(max_in_flight, _limit(shape))
    return delayed_weight_order("zb_h2", shape, max_in_flight=limit)


def _limit(shape: ScheduleShape) -> int:
    p = shape.num_workers
    return min(2 * p - 1, max(p, shape.num_microbatches))


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    if not weight_fits_the_gaps(times):
        return None
    busy_ns = shape.num_microbatches * (times.forward_ns + times.backward_ns)
    return max(
        last_weight_gradient_ns(shape, times, max_in_flight=_limit(shape)),
        busy_ns + (shape.num_workers - 1) * times.forward_ns,
    )


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return peak_of_every_worker(shape, max_in_flight=_limit(shape))


ZB_H2 = ScheduleEntry(
    name="zb_h2",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, sec. 2.2",
    generator=zb_h2,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=several_chunks,
)
