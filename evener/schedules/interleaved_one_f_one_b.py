"""Interleaved 1F1B: every worker holds several thin stages, which divides the bubble.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, section 2.2.2.

The paper asks for a multiple of p microbatches.  Here any number works.  Microbatches go through
the chunks in groups.  A group of fewer than p stalls, because its first microbatch is not back at
worker 0 when the last one has left, and if it follows larger groups it can even deadlock: with
p = 4, v = 3, m = 5 the paper's order with a last group of one waits for itself.  So m microbatches
are dealt evenly to floor(m / p) groups, each of at least p.
"""

from itertools import accumulate, chain, pairwise

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.alternate import alternate
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns, no_slices
from evener.schedules.refusals import refuse
from evener.schedules.row import row
from evener.schedules.shape import ScheduleShape


def interleaved_one_f_one_b(shape: ScheduleShape) -> Schedule:
    """Run groups of microbatches through all chunks, one forward, one backward in turn.

    Worker w holds the stages w, p + w, 2p + w, ...  With tF and tB of one stage the bubble is
    (p-1)(tF+tB), that is 1/v of the bubble of 1F1B over the same layers, for every m >= p.
    Worker w holds 2(p-1-w) + (v-1)g + 1 pairs of stage and microbatch, where g is the size of the
    largest group: p as in the paper if p divides m, at most 2p - 1 otherwise.

    Raises ScheduleError for slices.  Source: Narayanan et al. 2021, sec. 2.2.2.
    """
    refuse("interleaved_one_f_one_b", shape, no_slices)
    workers = tuple(_actions(shape, worker) for worker in range(shape.num_workers))
    return Schedule("interleaved_one_f_one_b", shape.num_stages, shape.num_microbatches, workers)


def _group_sizes(shape: ScheduleShape) -> list[int]:
    num_groups = max(1, shape.num_microbatches // shape.num_workers)
    size, larger = divmod(shape.num_microbatches, num_groups)
    return [size + 1] * larger + [size] * (num_groups - larger)


def _actions(shape: ScheduleShape, worker: int) -> tuple[Action, ...]:
    groups = [range(a, b) for a, b in pairwise(accumulate(_group_sizes(shape), initial=0))]
    stages = range(worker, shape.num_stages, shape.num_workers)
    forward = list(chain.from_iterable(row(s, Kind.F, g) for g in groups for s in stages))
    backward = list(chain.from_iterable(row(s, Kind.B, g) for g in groups for s in stages[::-1]))
    return alternate(forward, backward, in_flight=_peak_in_flight(shape)[worker])


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    p, m, v = shape.num_workers, shape.num_microbatches, shape.chunks_per_worker
    largest = max(_group_sizes(shape))
    return tuple(min(m * v, 2 * (p - 1 - w) + (v - 1) * largest + 1) for w in range(p))


INTERLEAVED_ONE_F_ONE_B = ScheduleEntry(
    name="interleaved_one_f_one_b",
    cite="Narayanan et al., Megatron-LM, SC 2021, sec. 2.2.2",
    generator=interleaved_one_f_one_b,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
)
