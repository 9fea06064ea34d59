"""DualPipeV: DualPipe cut in half, so that a V takes the place of two directions.

DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024 (arXiv 2412.19437), section 3.2.1, and the
description of the schedule in the DualPipe repository (github.com/deepseek-ai/DualPipe).

The pairs of F and B that the paper runs as one, so that the messages of one hide under the other,
are braids.
"""

from contextlib import nullcontext

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, StageTimes
from evener.schedules.refusals import not_two_chunks, refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_program import VProgram, v_schedule


def dualpipe_v(shape: ScheduleShape) -> Schedule:
    """Run down and up a V, a forward of one way beside a backward of the other.

    Bubble (p-1)(F&B+B-3W) as published, where the braid F&B takes the time F&B of both, for
    tF = tI >= tW; for tF >= tI it is (p-1)(2tF + max(0, tI-tW)).  With tI > tF every worker but one
    idles for another tI - tF, less at most one tF in all, since the last stage's first F is alone.
    A worker holds at most 2p + 1 pairs of stage and microbatch.  The published order needs 2p
    microbatches; fewer are taken from it.

    Raises ScheduleError unless there are two chunks per worker.
    Source: the DualPipe repository, DualPipeV.
    """
    refuse("dualpipe_v", shape, not_two_chunks)
    return v_schedule("dualpipe_v", shape, _write)


def _write(program: VProgram) -> None:
    below = program.num_workers - 1 - program.worker  # workers between this one and the turn
    _fill(program, below)
    for number in range(program.num_microbatches - 2 * program.num_workers + program.worker + 1):
        # The last stage's first microbatch is at the turn: the worker above waits for its gradient.
        with program.braid() if below or number else nullcontext():
            program.forward(0)
            program.backward(1)
        with program.braid():
            program.forward(1)
            program.backward(0)
    for _ in range(below):
        program.backward(1)
        with program.braid():
            program.forward(1)
            program.backward(0)
    _drain(program, below)


def _fill(program: VProgram, below: int) -> None:
    """Forwards until the first gradient is there, then chunk 1 with W right behind I."""
    for _ in range(2 * below):
        program.forward(0)
    for _ in range(program.worker + 1):
        program.forward(0)
        program.forward(1)
    for _ in range(below):
        program.input_grad(1)
        program.weight_grad()
        program.forward(1)


def _drain(program: VProgram, below: int) -> None:
    """The last backwards of both chunks in turn; W of the later half are put off to the end."""
    whole = program.worker + 1
    for number in range(2 * whole):
        program.back(1 - number % 2, put_off=number >= whole)
    for _ in range(below):
        program.weight_grad()
        program.input_grad(0)
    while program.num_put_off:
        program.weight_grad()


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    p, m = shape.num_workers, shape.num_microbatches
    if m < 2 * p:
        return None
    f, i, w = times.forward_ns, times.input_grad_ns, times.weight_grad_ns
    late_ns = max(0, (p - 1) * (i - f) - f)
    return 2 * m * (f + i + w) + (p - 1) * (2 * f + max(0, i - w)) + late_ns


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    peak = min(2 * shape.num_microbatches, 2 * shape.num_workers + 1)
    return (peak,) * shape.num_workers


DUALPIPE_V = ScheduleEntry(
    name="dualpipe_v",
    cite="DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, sec. 3.2.1; DualPipeV",
    generator=dualpipe_v,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=not_two_chunks,
    peak_is_exact=False,
)
