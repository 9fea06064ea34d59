"""The automatic zero-bubble schedules: several orders are built and the fastest one is taken.

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 3.1: a
heuristic that works in rounds of one forward and one backward per stage, with three binary choices
that are all tried.  Two things are tried besides: an order of F and I that was made for slower
messages, whose slack helps with the true ones, and plain list scheduling, which sometimes does
better where stages are unequal.
"""

from collections.abc import Iterator
from dataclasses import replace
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

_SLOWER_MESSAGES = (4, 8)


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
    times = capped(times, range(shape.num_workers), num_held=num_held)
    best = min(_candidates(shape, times), key=lambda run: (run.span_ns, run.step_ns))
    return best.schedule(name)


def _candidates(shape: ScheduleShape, times: PipelineTimes) -> Iterator[ListRun]:
    world = _world(shape, times)
    yield from _all_rounds(world)
    yield world.run(Priorities())
    for factor in _SLOWER_MESSAGES:
        slow = _world(shape, _with_slower_messages(times, factor))
        planned = min(_all_rounds(slow), key=lambda run: run.span_ns)
        filled = world.fill(planned.when)
        if filled is not None:
            yield filled


def _world(shape: ScheduleShape, times: PipelineTimes) -> ListWorld:
    return ListWorld(
        times,
        num_workers=shape.num_workers,
        num_microbatches=shape.num_microbatches,
        workers=range(shape.num_workers),
    )


def _with_slower_messages(times: PipelineTimes, factor: int) -> PipelineTimes:
    return replace(
        times,
        forward_message_ns=tuple(factor * ns for ns in times.forward_message_ns),
        backward_message_ns=tuple(factor * ns for ns in times.backward_message_ns),
    )


def _all_rounds(world: ListWorld) -> list[ListRun]:
    return [_rounds(world, Switches(*s)) for s in product((False, True), repeat=3)]


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
