"""V-Half: half the bubble of 1F1B in half its memory.

Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (arXiv 2405.15362),
section 3.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import PipelineTimes, ScheduleEntry, no_closed_form
from evener.schedules.refusals import not_two_chunks, refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_memory import Block, fastest_v


def v_half(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Repeat a block that keeps activations half as long as ZB-V.

    times: equal ones if left out.

    A worker holds at most 2 floor(p/2) + 2 pairs of stage and microbatch, where 1F1B holds 2p.  At
    tF = tI = tW the bubble is no more than 3(p-1)tF, half of that of 1F1B.

    Raises ScheduleError unless there are two chunks per worker, and for a cap below one microbatch
    of each.  Source: Qi et al. 2024 (arXiv 2405.15362), sec. 3.
    """
    refuse("v_half", shape, not_two_chunks)
    even = shape.num_workers % 2 == 0
    block = Block(hops=(1, 2, 1, 2), turns=(3, 0, 4) if even else (0, 0, 1))
    return fastest_v("v_half", shape, times, orders=[block.when(shape)], num_held=_num_held(shape))


def _num_held(shape: ScheduleShape) -> int:
    return shape.num_workers // 2 + 1


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (2 * min(shape.num_microbatches, _num_held(shape)),) * shape.num_workers


V_HALF = ScheduleEntry(
    name="v_half",
    cite="Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, sec. 3",
    generator=v_half,
    peak_in_flight=_peak_in_flight,
    makespan_ns=no_closed_form,
    unsupported=not_two_chunks,
    peak_is_exact=False,
    adapted=v_half,
)
