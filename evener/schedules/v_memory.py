"""V-shaped schedules with a limit on memory: the order of F and I is given, W fill the waits.

Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (arXiv 2405.15362).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import UNIT_TIMES, PipelineTimes
from evener.schedules.list_kernel import Int
from evener.schedules.list_scheduler import ListRun, ListWorld, Priorities, capped
from evener.schedules.shape import ScheduleShape
from evener.schedules.v_placement import zigzag_workers

_SLOTS_PER_MICROBATCH = 6  # F, I and W of two stages


@dataclass(frozen=True)
class Block:
    """The chain of F and I of one microbatch, which is repeated every six slots (section 3).

    A slot is the time of one F, I or W of a stage.  How long the block keeps its activations is
    what the workers hold; as one stage of a worker keeps them long where the other keeps them
    short, all workers hold the same.

    hops: slots from one worker to the next in the four parts of the chain: F down and up the
        workers, I down and up.
    turns: idle slots between these parts.
    """

    hops: tuple[int, int, int, int]
    turns: tuple[int, int, int] = (0, 0, 0)

    def when(self, shape: ScheduleShape) -> Int:
        """int64[F and I, stage, microbatch], the slot of each."""
        steps = [self.hops[0]] * (shape.num_workers - 1)
        for turn, hop in zip(self.turns, self.hops[1:], strict=True):
            steps += [turn + 1] + [hop] * (shape.num_workers - 1)
        chain = np.array(list(accumulate(steps, initial=0)))
        slots = np.array([chain[: shape.num_stages], chain[shape.num_stages :][::-1]])
        when: Int = slots[:, :, None] + _SLOTS_PER_MICROBATCH * np.arange(shape.num_microbatches)
        return when


def when_of(schedule: Schedule) -> Int:
    """int64[F and I, stage, microbatch], the place of each F and of each B or I in its list."""
    when = np.zeros((2, schedule.num_stages, schedule.num_microbatches), dtype=np.int64)
    for row in schedule.workers:
        for place, action in enumerate(row):
            if action.kind is not Kind.W:
                when[int(action.kind is not Kind.F), action.stage, action.microbatch] = place
    return when


def fastest_v(
    name: str,
    shape: ScheduleShape,
    times: PipelineTimes | None,
    *,
    orders: Sequence[Int],
    num_held: int,
) -> Schedule:
    """Of a V with two chunks per worker, the order with the shortest span of a worker.

    Of those the one with the shortest step.

    times: equal ones if left out.
    orders: as ``when`` of a block; each is tried with W that may and that may not delay F and I.
        Where times are unequal list scheduling sometimes does better, so it is tried as well.
    num_held: no worker holds more than so many microbatches of both its stages take, nor more than
        ``times.cap_bytes``.

    Raises ScheduleError if a cap has no room for one microbatch of each stage.
    """
    workers = zigzag_workers(shape.num_workers, shape.num_stages)
    if times is None:
        times = PipelineTimes.equal(shape.num_stages, UNIT_TIMES)
    world = ListWorld(
        capped(times, workers, num_held=num_held),
        num_workers=shape.num_workers,
        num_microbatches=shape.num_microbatches,
        workers=workers,
    )
    best = min(_candidates(world, orders), key=lambda run: (run.span_ns, run.step_ns))
    return best.schedule(name)


def _candidates(world: ListWorld, orders: Sequence[Int]) -> Iterator[ListRun]:
    for when in orders:
        for patient in (False, True):
            run = world.fill(when, patient=patient)
            if run is not None:
                yield run
    yield world.run(Priorities())
    yield world.run(Priorities(order=(Kind.F, Kind.I, Kind.W)))
