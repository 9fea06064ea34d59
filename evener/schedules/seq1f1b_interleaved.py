"""Interleaved Seq1F1B: slices go through several thin stages per worker.

Sun et al., "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model
Training", NAACL 2025 (arXiv 2406.03488), section 3.

Slices go through the chunks in groups, as the microbatches of ``interleaved_one_f_one_b`` do.
Backwards run last in first out inside a microbatch, so a group holds whole microbatches: as few as
have p slices together, or the groups could wait for one another.
"""

from itertools import accumulate, chain, pairwise

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.alternate import alternate
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns, supports_every_shape
from evener.schedules.shape import ScheduleShape
from evener.schedules.slices import reversed_units_of, unit_row, units_of


def seq1f1b_interleaved(shape: ScheduleShape) -> Schedule:
    """Run groups of slices through all chunks, one forward, one backward in turn.

    Worker w holds the stages w, p + w, 2p + w, ...  With tF and tB of one slice on one stage the
    bubble is (p-1)(tF+tB) where there are p slices or more.  Worker w holds
    2(p-1-w) + (v-1)g + k slices of a stage, where g is the number of slices of the largest group: p
    as in the paper, if k divides p and p divides mk.

    Source: Sun et al. 2025, sec. 3.
    """
    workers = tuple(_actions(shape, worker) for worker in range(shape.num_workers))
    return Schedule(
        "seq1f1b_interleaved",
        shape.num_stages,
        shape.num_microbatches,
        workers,
        num_slices=shape.num_slices,
    )


def _group_sizes(shape: ScheduleShape) -> list[int]:
    """Microbatches of each group, dealt evenly."""
    least = -(-shape.num_workers // shape.num_slices)
    num_groups = max(1, shape.num_microbatches // least)
    size, larger = divmod(shape.num_microbatches, num_groups)
    return [size + 1] * larger + [size] * (num_groups - larger)


def _actions(shape: ScheduleShape, worker: int) -> tuple[Action, ...]:
    groups = [range(a, b) for a, b in pairwise(accumulate(_group_sizes(shape), initial=0))]
    stages = range(worker, shape.num_stages, shape.num_workers)
    forward = [unit_row(s, Kind.F, units_of(shape, g)) for g in groups for s in stages]
    backward = [
        unit_row(s, Kind.B, reversed_units_of(shape, g)) for g in groups for s in stages[::-1]
    ]
    return alternate(
        list(chain.from_iterable(forward)),
        list(chain.from_iterable(backward)),
        in_flight=_peak_in_flight(shape)[worker],
    )


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    p, v, k = shape.num_workers, shape.chunks_per_worker, shape.num_slices
    largest = max(_group_sizes(shape)) * k
    return tuple(
        min(shape.num_units * v, 2 * (p - 1 - w) + (v - 1) * largest + k) for w in range(p)
    )


SEQ1F1B_INTERLEAVED = ScheduleEntry(
    name="seq1f1b_interleaved",
    cite="Sun et al., Seq1F1B, NAACL 2025, sec. 3",
    generator=seq1f1b_interleaved,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
    unsupported=supports_every_shape,
    slicer="flop_balanced",
)
