"""Seq1F1B with a split backward: the weight gradients of slices fill the drain.

Sun et al., "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model
Training", NAACL 2025 (arXiv 2406.03488), section 3, with the order of ZB-H1 (Qi et al., "Zero
Bubble Pipeline Parallelism", ICLR 2024, section 2.1) over slices.
"""

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules.delayed_weight import (
    last_weight_gradient_ns,
    put_off_weights,
    weight_fits_the_gaps,
)
from evener.schedules.entry import ScheduleEntry, StageTimes
from evener.schedules.refusals import refuse, several_chunks_of_slices
from evener.schedules.shape import ScheduleShape
from evener.schedules.slices import reversed_units_of, unit_row, units_of


def seq1f1b_zb(shape: ScheduleShape) -> Schedule:
    """Follow Seq1F1B with a split backward; worker w puts W off by w slices.

    Every worker holds at most p - 1 + k slices.  From that many on the bubble is (p-1)(tF+tI-tW)
    with the times of one slice, exact as long as tW <= tF and tW <= tI.

    Raises ScheduleError for more than one chunk per worker.
    Source: Sun et al. 2025, sec. 3; Qi et al. 2024, sec. 2.1.
    """
    refuse("seq1f1b_zb", shape, several_chunks_of_slices)
    p, microbatches = shape.num_workers, range(shape.num_microbatches)
    units, back = units_of(shape, microbatches), reversed_units_of(shape, microbatches)
    workers = tuple(
        put_off_weights(
            unit_row(stage, Kind.F, units),
            unit_row(stage, Kind.I, back),
            warm_up=p - stage - 1 + shape.num_slices,
            put_off=stage,
        )
        for stage in range(p)
    )
    return Schedule(
        "seq1f1b_zb", shape.num_stages, shape.num_microbatches, workers, num_slices=shape.num_slices
    )


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    # With fewer slices worker 0 has no forward left when the first gradient is back.
    if shape.num_units < _most_in_flight(shape) or not weight_fits_the_gaps(times):
        return None
    return last_weight_gradient_ns(shape, times, max_in_flight=shape.num_workers)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (min(shape.num_units, _most_in_flight(shape)),) * shape.num_workers


def _most_in_flight(shape: ScheduleShape) -> int:
    return shape.num_workers - 1 + shape.num_slices


SEQ1F1B_ZB = ScheduleEntry(
    name="seq1f1b_zb",
    cite="Sun et al., Seq1F1B, NAACL 2025, sec. 3, over ZB-H1 of Qi et al., ICLR 2024",
    generator=seq1f1b_zb,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=several_chunks_of_slices,
    slicer="flop_balanced",
)
