"""The automatic zero-bubble schedules: several orders are built and the fastest one is taken.

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 3.1: a
heuristic that works in rounds of one forward and one backward per stage, with three binary choices
that are all tried.  Where times are unequal plain list scheduling sometimes does better, so it is
tried as well.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from evener.ir.schedule import Schedule
from evener.schedules.entry import PipelineTimes
from evener.schedules.list_scheduler import (
    ListRun,
    ListWorld,
    Priorities,
    capped,
    ready_at_start,
)
from evener.schedules.refusals import refuse_several_chunks
from evener.schedules.shape import ScheduleShape
from evener.schedules.zb_kernel import Rounds, Switches, run_rounds


def automatic_zero_bubble(
    name: str, shape: ScheduleShape, times: PipelineTimes, *, num_held: int
) -> Schedule:
    """The order with the shortest span of a worker, and of those the one with the shortest step.

    num_held: no worker holds more than the activations of so many microbatches of its stage, nor
        more than ``times.cap_bytes``.

    Raises ScheduleError for more than one chunk per worker, and if a cap has no room for a single
    microbatch.
    """
    refuse_several_chunks(name, shape)
    workers = range(shape.num_workers)
    world = ListWorld(
        capped(times, workers, num_held=num_held),
        num_workers=shape.num_workers,
        num_microbatches=shape.num_microbatches,
        workers=workers,
    )
    best = min(_candidates(world), key=lambda run: (run.span_ns, run.step_ns))
    return best.schedule(name)


def _candidates(world: ListWorld) -> Iterator[ListRun]:
    for switches in product((False, True), repeat=3):
        yield _rounds(world, Switches(*switches))
    yield world.run(Priorities())


def _rounds(world: ListWorld, switches: Switches) -> ListRun:
    run = world.empty_run()
    num_stages = world.num_stages
    state = Rounds(
        ready_ns=ready_at_start(run.arrays),
        done=np.zeros((3, num_stages), dtype=np.int64),
        free_ns=np.zeros(num_stages, dtype=np.int64),
        idle_ns=np.zeros(num_stages, dtype=np.int64),
        held_bytes=np.zeros(num_stages, dtype=np.int64),
        extra=np.zeros(num_stages, dtype=np.int64),
    )
    run_rounds(run.arrays, switches, state, run.taken)
    return run
