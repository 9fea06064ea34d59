"""The order that interleaved 1F1B of microbatches and of slices have in common.

Microbatches go through the chunks in groups.  A group of fewer than p slices stalls, because its
first slice is not back at worker 0 when the last one has left, and if it follows larger groups it
can even deadlock: with p = 4, v = 3, m = 5 and no slices, groups of 4 and 1 wait for each other.
So m microbatches are dealt evenly to as many groups as have p slices each.  Groups hold whole
microbatches, as backwards run last in first out over the slices of a microbatch.
"""

from itertools import accumulate, chain, pairwise

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.alternate import alternate
from evener.schedules.shape import ScheduleShape
from evener.schedules.slices import reversed_units_of, unit_row, units_of


def interleaved_order(name: str, shape: ScheduleShape) -> Schedule:
    """Run groups through all chunks, one forward, one backward in turn."""
    workers = tuple(_actions(shape, worker) for worker in range(shape.num_workers))
    return Schedule(
        name, shape.num_stages, shape.num_microbatches, workers, num_slices=shape.num_slices
    )


def interleaved_peak(shape: ScheduleShape) -> tuple[int, ...]:
    """Per worker the slices in flight: 2(p-1-w) + (v-1)g + k, with g in the largest group."""
    p, v, k = shape.num_workers, shape.chunks_per_worker, shape.num_slices
    largest = max(_group_sizes(shape)) * k
    return tuple(
        min(shape.num_units * v, 2 * (p - 1 - w) + (v - 1) * largest + k) for w in range(p)
    )


def _group_sizes(shape: ScheduleShape) -> list[int]:
    """Microbatches of each group."""
    least = -(-shape.num_workers // shape.num_slices)
    num_groups = max(1, shape.num_microbatches // least)
    size, larger = divmod(shape.num_microbatches, num_groups)
    return [size + 1] * larger + [size] * (num_groups - larger)


def _actions(shape: ScheduleShape, worker: int) -> tuple[Action, ...]:
    groups = [range(a, b) for a, b in pairwise(accumulate(_group_sizes(shape), initial=0))]
    there = [units_of(shape, group) for group in groups]
    back = [reversed_units_of(shape, group) for group in groups]
    stages = range(worker, shape.num_stages, shape.num_workers)
    return alternate(
        list(chain.from_iterable(unit_row(s, Kind.F, units) for units in there for s in stages)),
        list(
            chain.from_iterable(unit_row(s, Kind.B, units) for units in back for s in stages[::-1])
        ),
        in_flight=interleaved_peak(shape)[worker],
    )
