"""STP: forwards and backwards braided over a V, for pipelines whose stages are tensor parallel.

"Synergistic Tensor and Pipeline Parallelism", 2025 (arXiv 2510.27257), section 3.

A braid is a pair of actions that run attention and MLP units in turn, so that the all-reduce of
each one's unit hides under the other's next (``cost.braid``).
"""

from contextlib import nullcontext

from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, StageTimes
from evener.schedules.refusals import not_two_chunks, refuse
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_program import VProgram, v_schedule


def stp(shape: ScheduleShape) -> Schedule:
    """Fill a V deep enough that every backward finds a forward to be braided with.

    Bubble (p-1)(tF+tI-tW) for equal times; with 3p - 1 microbatches or more and tW <= max(tF, tI),
    p - 1 times max(tF, tI) + max(0, tI-tW) + 2 max(0, tF-tW).  All but 2p + 1 all-reduces hide.  A
    worker holds the activations of at most 3p + 1 pairs of stage and microbatch; with the W that
    are still owed, worker w has 3p + max(1, w) pairs in flight.

    The paper asks for 2p microbatches.  With fewer than 3p - 1 its program runs out of forwards in
    the middle; here the braids then become fewer and chunk 0 puts off as many W as the end lacks,
    which keeps the bubble for equal times.  Fewer than 2p are taken from the order of 2p.

    Raises ScheduleError unless there are two chunks per worker.
    Source: arXiv 2510.27257, sec. 3.
    """
    refuse("stp", shape, not_two_chunks)
    return v_schedule("stp", shape, _write)


def _write(program: VProgram) -> None:
    below = program.num_workers - 1 - program.worker  # workers between this one and the turn
    _fill(program, below)
    num_forwards = program.num_microbatches - 3 * program.num_workers + 1 + program.worker
    num_braids = 2 * num_forwards + 1  # of chunk 0 and chunk 1 in turn, of which one more
    for number in range(num_braids):
        chunk = 1 - number % 2
        with program.braid():
            program.forward(chunk)
            program.back(chunk, put_off=number >= num_braids - program.worker)
    _last_forwards(program, starts_back=num_forwards >= 0)
    for number in range(2 * below + 1):
        if number % 2 == 0:
            program.backward(0)
        else:
            program.weight_grad()
            program.weight_grad()
    while program.num_put_off:
        program.weight_grad()


def _fill(program: VProgram, below: int) -> None:
    """Forwards until the first gradient is there, then F1&I1 and F0&W."""
    for _ in range(2 * below):
        program.forward(0)
    for _ in range(program.worker + 1):
        program.forward(0)
        program.forward(1)
    if program.worker % 2 == 0:
        program.forward(0)
    for _ in range((program.worker + 1) // 2):
        with program.braid():
            program.forward(0)
            program.forward(0)
    for _ in range(below):
        with program.braid():
            program.forward(1)
            program.input_grad(1)
        with program.braid():
            program.forward(0)
            program.weight_grad()


def _last_forwards(program: VProgram, *, starts_back: bool) -> None:
    """B0 and F1&I1 in turn while there are forwards, then the backwards left by the fill.

    starts_back: whether it is the turn of B0.  The end has room for 2p - 2 W.
    """
    owed = program.num_put_off + program.forwards_left(1)
    missing = max(0, 2 * program.num_workers - 2 - owed)
    # With few microbatches, the workers above wait for these gradients: F does not hold them up.
    is_braided = program.num_microbatches >= 3 * program.num_workers - 1
    while program.forwards_left(1):
        if starts_back:
            program.back(0, put_off=missing > 0)
            missing -= 1
        starts_back = True
        with program.braid() if is_braided else nullcontext():
            program.forward(1)
            program.input_grad(1)
    for number in range(2 * (program.worker + 1)):
        program.back(number % 2, put_off=missing > 0)
        missing -= 1


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    p, m = shape.num_workers, shape.num_microbatches
    f, i, w = times.forward_ns, times.input_grad_ns, times.weight_grad_ns
    if not (w <= max(f, i) if m >= 3 * p - 1 else m >= 2 * p and f == i == w):
        return None
    idle_ns = max(f, i) + max(0, i - w) + 2 * max(0, f - w)
    return 2 * m * (f + i + w) + (p - 1) * idle_ns


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    p, m = shape.num_workers, shape.num_microbatches
    return tuple(min(2 * m, 3 * p + max(1, worker)) for worker in range(p))


STP = ScheduleEntry(
    name="stp",
    cite="Synergistic Tensor and Pipeline Parallelism, 2025 (arXiv 2510.27257), sec. 3",
    generator=stp,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=not_two_chunks,
    peak_is_exact=False,
)
