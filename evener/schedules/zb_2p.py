"""ZB-2p: the fastest of the automatic zero-bubble orders in twice the memory of 1F1B.

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), sections 3.1 and 5.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import UNIT_TIMES, PipelineTimes, ScheduleEntry, no_closed_form
from evener.schedules.refusals import several_chunks
from evener.schedules.shape import ScheduleShape
from evener.schedules.zb_automatic import automatic_zero_bubble


def zb_2p(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Build orders for these times (equal ones if left out) and take the fastest.

    Every worker holds no more than the activations of 2p microbatches of its stage, twice what
    the first worker of 1F1B does.  The bubble all but vanishes.

    Raises ScheduleError for more than one chunk per worker and for a cap below one microbatch.
    Source: Qi et al. 2024, sec. 3.1.
    """
    if times is None:
        times = PipelineTimes.equal(shape.num_stages, UNIT_TIMES)
    return automatic_zero_bubble("zb_2p", shape, times, num_held=2 * shape.num_workers)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (min(shape.num_microbatches, 2 * shape.num_workers),) * shape.num_workers


ZB_2P = ScheduleEntry(
    name="zb_2p",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, sec. 3.1",
    generator=zb_2p,
    peak_in_flight=_peak_in_flight,
    makespan_ns=no_closed_form,
    unsupported=several_chunks,
    peak_is_exact=False,
    adapted=zb_2p,
)
