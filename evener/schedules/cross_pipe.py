"""The greedy order that the three CrossPipe schedules have in common; they differ in placement.

Chen et al., "CrossPipe: Towards Optimal Pipeline Schedules for Cross-Datacenter Training", USENIX
ATC 2025 (arXiv 2507.00217), algorithm 1.
"""

from collections.abc import Sequence
from dataclasses import replace

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import UNIT_TIMES, PipelineTimes
from evener.schedules.list_scheduler import ListWorld, Priorities, capped
from evener.schedules.shape import ScheduleShape

_NUM_HELD_PER_WORKER = 2

_ALTERNATE = Priorities(order=(Kind.I, Kind.F, Kind.W), after_backward=(Kind.F, Kind.I, Kind.W))
_DRAIN_FIRST = Priorities(order=(Kind.I, Kind.F, Kind.W))


def cross_pipe_order(
    name: str, shape: ScheduleShape, times: PipelineTimes | None, *, workers: Sequence[int]
) -> Schedule:
    """Let whoever is idle first take what it can: F while filling, then F and I in turn.

    times: equal ones if left out.
    workers: per stage, its worker.

    W goes where nothing else can start: in waits, and where memory has no room for another F.  The
    algorithm leaves open whether I may go before F more often and whether a W may delay an I that
    is on its way; all four are tried, and the fastest is taken.  A worker keeps to the caps of the
    times; if these have none, to 2p microbatches of its stages, the larger of the paper's two
    memory limits.

    Raises ScheduleError if a cap has no room for one microbatch of each stage of its worker.
    """
    if times is None:
        times = PipelineTimes.equal(shape.num_stages, UNIT_TIMES)
    if times.cap_bytes is None:
        times = capped(times, workers, num_held=_NUM_HELD_PER_WORKER * shape.num_workers)
    world = ListWorld(
        times,
        num_workers=shape.num_workers,
        num_microbatches=shape.num_microbatches,
        workers=workers,
    )
    runs = [
        world.run(replace(priorities, patient=patient))
        for priorities in (_ALTERNATE, _DRAIN_FIRST)
        for patient in (False, True)
    ]
    return min(runs, key=lambda run: run.step_ns).schedule(name)


def cross_pipe_peak(shape: ScheduleShape) -> tuple[int, ...]:
    """Per worker, the most that it holds where the times have no caps."""
    num_held = min(shape.num_microbatches, _NUM_HELD_PER_WORKER * shape.num_workers)
    return (num_held * shape.chunks_per_worker,) * shape.num_workers
