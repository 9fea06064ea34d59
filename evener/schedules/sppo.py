"""SPPO: one long sequence after the other, each as a pipeline of subsequences.

"SPPO: Efficient Long-sequence LLM Training via Adaptive Sequence Pipeline Parallel Offloading"
(arXiv 2503.10377); multiplexed partitioning is its section 6.
"""

from itertools import chain

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, StageTimes
from evener.schedules.refusals import refuse, several_chunks_of_slices
from evener.schedules.shape import ScheduleShape
from evener.schedules.slices import unit_row, units_of


def sppo(shape: ScheduleShape) -> Schedule:
    """Run all subsequences of a microbatch forward, then back in reverse; then the next one.

    With N subsequences that take equally long the bubble is (p-1)/N of the work, and no worker
    holds more than one microbatch of its stage.  The subsequences that live longest can be
    offloaded (``ir.passes.insert_offload``).  Multiplexed partitioning, which spreads a subsequence
    over workers that wait while the pipeline fills and drains, is not an order of these actions: it
    needs the stage's parameters and the keys and values of earlier slices on other workers.

    Raises ScheduleError for more than one chunk per worker.  Source: SPPO.
    """
    refuse("sppo", shape, several_chunks_of_slices)
    workers = tuple(_actions(stage, shape) for stage in range(shape.num_workers))
    return Schedule(
        "sppo", shape.num_stages, shape.num_microbatches, workers, num_slices=shape.num_slices
    )


def _actions(stage: int, shape: ScheduleShape) -> tuple[Action, ...]:
    sequences = (units_of(shape, [microbatch]) for microbatch in range(shape.num_microbatches))
    return tuple(
        chain.from_iterable(
            (*unit_row(stage, Kind.F, units), *unit_row(stage, Kind.B, reversed(units)))
            for units in sequences
        )
    )


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int:
    slots = shape.num_slices + shape.num_workers - 1
    return shape.num_microbatches * slots * (times.forward_ns + times.backward_ns)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (shape.num_slices,) * shape.num_workers


SPPO = ScheduleEntry(
    name="sppo",
    cite="SPPO, arXiv 2503.10377",
    generator=sppo,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=several_chunks_of_slices,
    slicer="sppo",
)
