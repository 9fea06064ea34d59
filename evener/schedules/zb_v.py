"""ZB-V: no bubble in the memory of 1F1B.

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 6.
"""

from evener.ir.schedule import Schedule
from evener.schedules.entry import PipelineTimes, ScheduleEntry, StageTimes
from evener.schedules.refusals import not_two_chunks, refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_memory import fastest_v, when_of
from evener.schedules.v_program import VProgram, v_schedule


def zb_v(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Run down and up a V; where times are not those of the paper, take the fastest of a few.

    times: equal ones if left out.

    At tF = tI = tW no worker is idle between its first and its last action for m >= 2p; they
    start one tF after the other.  A worker holds at most 2p pairs of stage and microbatch, which
    are the p microbatches of 1F1B.

    Raises ScheduleError unless there are two chunks per worker, and for a cap below one microbatch
    of each.  Source: Qi et al. 2024, sec. 6.
    """
    refuse("zb_v", shape, not_two_chunks)
    order = when_of(v_schedule("zb_v", shape, _write))
    return fastest_v("zb_v", shape, times, orders=[order], num_held=shape.num_workers)


def _write(program: VProgram) -> None:
    """The order of F and I; the backwards are whole here, their W go where there is a wait."""
    below = program.num_workers - 1 - program.worker  # workers between this one and the turn
    for _ in range(2 * below + 1):
        program.forward(0)
    for _ in range(program.worker):
        program.forward(1)
        program.forward(0)
    for _ in range(below + 1):
        program.forward(1)
        program.backward(1)
    while program.forwards_left(1):
        program.forward(0)
        program.backward(0)
        program.forward(1)
        program.backward(1)
    for _ in range(program.worker):
        program.backward(0)
        program.backward(1)
    for _ in range(below + 1):
        program.backward(0)


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    """The work of one worker, and the start of the last one; for equal times."""
    few = shape.num_microbatches < 2 * shape.num_workers
    if few or not times.forward_ns == times.input_grad_ns == times.weight_grad_ns:
        return None
    return (6 * shape.num_microbatches + shape.num_workers - 1) * times.forward_ns


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (2 * min(shape.num_microbatches, shape.num_workers),) * shape.num_workers


ZB_V = ScheduleEntry(
    name="zb_v",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, sec. 6",
    generator=zb_v,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=not_two_chunks,
    peak_is_exact=False,
    adapted=zb_v,
)
