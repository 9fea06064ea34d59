"""What every schedule generator must keep, ready to be run on one of your own.

::

    @pytest.mark.parametrize("case", conformance_cases(MY_ENTRY), ids=str)
    def test_my_schedule(case):
        case.check()

or ``check_schedule_generator(MY_ENTRY)`` without pytest.  A broken promise raises AssertionError
with the shape, what was promised and what came out; an illegal schedule raises the ScheduleError
of ``ir.check``.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from evener.cost.table import CostTable
from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.check import check
from evener.ir.memory import peak_in_flight
from evener.ir.passes import lower
from evener.ir.schedule import COMPUTE_KINDS, Schedule
from evener.ir.text import diff_schedules, format_schedule, parse_schedule
from evener.schedules import ScheduleEntry, ScheduleShape, StageTimes
from evener.sim import simulate, simulate_many
from evener.testing.worlds import (
    WORLDS,
    equal_costs,
    pipeline_costs,
    unequal_times,
    unit_costs,
)

# One worker, one microbatch, fewer microbatches than workers, as many, more, no multiple of them.
SHAPES: tuple[ScheduleShape, ...] = tuple(
    ScheduleShape(num_workers, num_microbatches, chunks)
    for chunks in (1, 2, 3)
    for num_workers, num_microbatches in (
        *((1, 1), (1, 3), (2, 1), (2, 2), (2, 5), (3, 2), (3, 7), (4, 1), (4, 4), (4, 6), (4, 9)),
        *((8, 3), (8, 13), (8, 16), (16, 5), (16, 33)),
    )
)

# The same with slices: 2 or 3 divide nothing here, 4 and 8 do.
SLICED_SHAPES: tuple[ScheduleShape, ...] = tuple(
    ScheduleShape(num_workers, num_microbatches, chunks, num_slices)
    for chunks in (1, 2)
    for num_workers, num_microbatches, num_slices in (
        *((1, 1, 3), (2, 1, 2), (2, 5, 3), (3, 2, 4), (4, 1, 2), (4, 1, 8), (4, 6, 3)),
        *((4, 8, 4), (8, 3, 8), (8, 13, 2)),
    )
)

# Of schedules that make several updates between two flushes.
UPDATES: tuple[ScheduleShape, ...] = tuple(
    ScheduleShape(num_workers, num_microbatches, num_updates=num_updates)
    for num_workers, num_microbatches, num_updates in (
        *((1, 1, 3), (2, 1, 2), (2, 4, 3), (3, 5, 2), (4, 8, 3), (4, 16, 2), (8, 8, 4), (8, 16, 3)),
    )
)

# Equal halves, a light W, a heavy F, a heavy I, and a W that is longer than F and I.
TIMES: tuple[StageTimes, ...] = (
    StageTimes(1, 1, 1),
    StageTimes(4, 5, 2),
    StageTimes(7, 3, 3),
    StageTimes(2, 9, 1),
    StageTimes(1, 2, 5),
)


@dataclass(frozen=True)
class ConformanceCase:
    """One promise of one schedule in one shape."""

    entry: ScheduleEntry
    shape: ScheduleShape
    promise: Callable[[ScheduleEntry, ScheduleShape], None]

    def check(self) -> None:
        """Raise AssertionError or ScheduleError if the promise is broken."""
        self.promise(self.entry, self.shape)

    def __str__(self) -> str:
        name = self.promise.__name__.removeprefix("check_")
        return f"{self.entry.name}-{_sizes(self.shape)}-{name}"


def conformance_cases(
    entry: ScheduleEntry, shapes: Sequence[ScheduleShape] | None = None
) -> list[ConformanceCase]:
    """All promises in all shapes; an unsupported shape must be refused, and not every one may be.

    shapes: by default ``SHAPES`` and ``SLICED_SHAPES``, and ``UPDATES`` if it is asynchronous.

    Raises AssertionError if the entry supports none of the shapes.
    """
    if shapes is None:
        shapes = (*SHAPES, *SLICED_SHAPES, *(UPDATES if entry.asynchronous else ()))
    supported = [shape for shape in shapes if entry.unsupported(shape) is None]
    assert supported, f"{entry.name} supports none of {len(shapes)} shapes: nothing to check"
    return [
        ConformanceCase(entry, shape, promise)
        for shape in shapes
        for promise in (PROMISES if shape in supported else (check_refused,))
    ]


def shape_for(entry: ScheduleEntry, num_workers: int, num_microbatches: int) -> ScheduleShape:
    """The shape of these sizes with the fewest chunks per worker that the entry supports.

    If it supports none, then of the next larger number of workers and of microbatches.
    """
    shapes = (
        ScheduleShape(more_workers, more_microbatches, chunks)
        for more_workers in range(num_workers, num_workers + 4)
        for more_microbatches in range(num_microbatches, num_microbatches + 8)
        for chunks in range(1, 9)
    )
    return next(shape for shape in shapes if entry.unsupported(shape) is None)


def check_schedule_generator(
    entry: ScheduleEntry, shapes: Sequence[ScheduleShape] | None = None
) -> None:
    """Run all cases; the first broken promise is raised."""
    for case in conformance_cases(entry, shapes):
        case.check()


def check_refused(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """An unsupported shape is refused with a ScheduleError that gives the declared reason."""
    reason = entry.unsupported(shape)
    try:
        entry.generator(shape)
    except ScheduleError as error:
        assert str(reason) in str(error), (
            f"{entry.name}, {_sizes(shape)}: refused with '{error}', declared is '{reason}'"
        )
    else:
        raise AssertionError(f"{entry.name} accepts {_sizes(shape)}, but declares: {reason}")


def check_legal(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """``ir.check`` finds no fault, before and after the passes complete the step."""
    schedule = entry.generator(shape)
    check(schedule)
    check(lower(schedule, clip=True))


def check_complete(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """The sizes are those of the shape; each cell has one F and either one B or one I and one W.

    No more workers hold a stage than is declared.
    """
    schedule = entry.generator(shape)
    sizes = (schedule.num_workers, schedule.num_stages, schedule.num_microbatches)
    num_microbatches = shape.num_microbatches * shape.num_updates
    wanted = (shape.num_workers, shape.num_stages, num_microbatches)
    assert sizes == wanted, f"{entry.name}: (workers, stages, microbatches) {sizes}, not {wanted}"
    assert schedule.num_slices == shape.num_slices, (
        f"{entry.name}: {schedule.num_slices} slices, not {shape.num_slices}"
    )
    count = Counter((a.kind, (a.stage, a.microbatch, a.slice)) for _, a in schedule.actions())
    foreign = {kind for kind, _ in count} - COMPUTE_KINDS
    if shape.num_updates > 1:
        foreign -= {Kind.STEP}  # where it stands says which weights are read
    assert not foreign, f"{entry.name} writes {sorted(foreign)}; passes insert those"
    cells = product(
        range(shape.num_stages),
        range(num_microbatches),
        (None,) if shape.num_slices == 1 else range(shape.num_slices),
    )
    for cell in cells:
        found = tuple(count[kind, cell] for kind in (Kind.F, Kind.B, Kind.I, Kind.W))
        assert found in {(1, 1, 0, 0), (1, 0, 1, 1)}, (
            f"{entry.name}, {_sizes(shape)}: stage, microbatch, slice {cell} has {found} of F B I W"
        )
    most = max(map(len, schedule.workers_of_stage))
    assert most <= entry.stage_copies, (
        f"{entry.name}, {_sizes(shape)}: {most} workers hold a stage, not {entry.stage_copies}"
    )


def check_deterministic(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """Two calls give equal schedules."""
    _assert_equal(entry.generator(shape), entry.generator(shape), "a second call gives another one")


def check_text_round_trip(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """The text form parses back to an equal schedule."""
    schedule = entry.generator(shape)
    parsed = parse_schedule(format_schedule(schedule))
    _assert_equal(schedule, parsed, "its text parses to another one")


def check_makespan(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """The simulated step equals the formula to the nanosecond, with and without messages."""
    schedule = entry.generator(shape)
    costs = [_costs(shape, times) for times in TIMES]
    wanted = [entry.makespan_ns(shape, times) for times in TIMES]
    for form in (schedule, lower(schedule)):
        found = [outcome.step_ns for outcome in simulate_many(form, costs)]
        for times, promised_ns, step_ns in zip(TIMES, wanted, found, strict=True):
            assert promised_ns in (None, step_ns), (
                f"{entry.name}, {_sizes(shape)}, {times}: takes {step_ns} ns, not {promised_ns}"
            )


def check_peak_in_flight(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """Every worker holds what is promised, or no more: in microbatches, and in simulated bytes.

    A cap of exactly that is kept; if the promise is exact, one byte less is exceeded.
    """
    schedule = entry.generator(shape)
    promised = entry.peak_in_flight(shape)
    counted = peak_in_flight(schedule)
    costs = unit_costs(shape.num_workers, shape.num_stages)
    check(schedule, memory=costs.memory, cap_bytes=promised)
    if not entry.peak_is_exact:
        pairs = zip(counted, promised, strict=True)
        assert all(count <= most for count, most in pairs), (
            f"{entry.name}, {_sizes(shape)}: in flight {counted}, more than {promised}"
        )
        return
    assert counted == promised, (
        f"{entry.name}, {_sizes(shape)}: in flight {counted}, not {promised}"
    )
    held = simulate(schedule, costs).peak_bytes
    assert held == promised, f"{entry.name}, {_sizes(shape)}: holds {held} bytes, not {promised}"
    try:
        check(schedule, memory=costs.memory, cap_bytes=[peak - 1 for peak in promised])
    except ScheduleError:
        return
    raise AssertionError(f"{entry.name}, {_sizes(shape)}: a cap below {promised} is accepted")


def check_unequal_worlds(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """It runs to the end in every tiny world, and never before the busiest worker can."""
    schedule = entry.generator(shape)
    lowered = lower(schedule)
    for world, costs_of in WORLDS.items():
        costs = costs_of(shape.num_workers, shape.num_stages)
        busy_ns = max(
            sum(costs.action_ns(worker, action) for action in actions)
            for worker, actions in enumerate(schedule.workers)
        )
        step_ns = simulate(lowered, costs).step_ns
        assert step_ns >= busy_ns, (
            f"{entry.name}, {_sizes(shape)}, world {world}: a step of {step_ns} ns, "
            f"but a worker is busy for {busy_ns} ns"
        )


def check_adapted(entry: ScheduleEntry, shape: ScheduleShape) -> None:
    """Made for unequal costs it is legal, complete and deterministic too.

    Caps on memory, here of two microbatches of each stage, are kept or refused.
    """
    if entry.adapted is None:
        return
    times = unequal_times(shape.num_stages)
    with_times = replace(entry, generator=lambda shape: entry(shape, times))
    for promise in (check_legal, check_complete, check_deterministic):
        promise(with_times, shape)
    cap_bytes = [
        sum(2 * times.activation_bytes[stage] for stage in stages)
        for stages in entry(shape, times).stages_of_worker
    ]
    try:
        capped = entry(shape, replace(times, cap_bytes=tuple(cap_bytes)))
    except ScheduleError:
        return
    memory = pipeline_costs(shape.num_workers, times).memory
    check(capped, memory=memory, cap_bytes=cap_bytes)


PROMISES: tuple[Callable[[ScheduleEntry, ScheduleShape], None], ...] = (
    check_legal,
    check_complete,
    check_deterministic,
    check_text_round_trip,
    check_makespan,
    check_peak_in_flight,
    check_unequal_worlds,
    check_adapted,
)


def _assert_equal(schedule: Schedule, other: Schedule, complaint: str) -> None:
    assert schedule == other, f"{schedule.name}: {complaint}:\n{diff_schedules(schedule, other)}"


def _costs(shape: ScheduleShape, times: StageTimes) -> CostTable:
    return equal_costs(
        shape.num_workers,
        shape.num_stages,
        forward_ns=times.forward_ns,
        input_grad_ns=times.input_grad_ns,
        weight_grad_ns=times.weight_grad_ns,
    )


def _sizes(shape: ScheduleShape) -> str:
    text = f"{shape.num_workers}x{shape.chunks_per_worker} stages, {shape.num_microbatches} mb"
    if shape.num_updates > 1:
        text += f", {shape.num_updates} updates"
    return text if shape.num_slices == 1 else f"{text} of {shape.num_slices} slices"
