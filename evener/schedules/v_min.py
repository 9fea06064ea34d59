"""V-Min: two thirds of the bubble of 1F1B in a third of its memory.

Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (arXiv 2405.15362),
section 3.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import PipelineTimes, ScheduleEntry, no_closed_form
from evener.schedules.refusals import not_two_chunks, refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_memory import Block, fastest_v


def v_min(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Repeat the block that keeps activations as short as is possible.

    times: equal ones if left out.

    A worker holds at most 2 ceil((p+2)/3) pairs of stage and microbatch, where 1F1B holds 2p.  At
    tF = tI = tW the bubble is no more than 4(p-1)tF, two thirds of that of 1F1B.

    Raises ScheduleError unless there are two chunks per worker, and for a cap below one microbatch
    of each.  Source: Qi et al. 2024 (arXiv 2405.15362), sec. 3.
    """
    refuse("v_min", shape, not_two_chunks)
    # With a multiple of three workers F of chunk 0 and I of chunk 1 would meet in one slot.
    turns = (2, 0, 2) if shape.num_workers % 3 == 0 else (0, 0, 0)
    block = Block(hops=(1, 1, 1, 1), turns=turns)
    return fastest_v("v_min", shape, times, orders=[block.when(shape)], num_held=_num_held(shape))


def _num_held(shape: ScheduleShape) -> int:
    return -(-(shape.num_workers + 2) // 3)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (2 * min(shape.num_microbatches, _num_held(shape)),) * shape.num_workers


V_MIN = ScheduleEntry(
    name="v_min",
    cite="Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, sec. 3",
    generator=v_min,
    peak_in_flight=_peak_in_flight,
    makespan_ns=no_closed_form,
    unsupported=not_two_chunks,
    peak_is_exact=False,
    adapted=v_min,
)
