"""TeraPipe: a pipeline over the tokens of a sequence.

Li et al., "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale Language Models",
ICML 2021 (arXiv 2102.07988), section 3.
"""

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns
from evener.schedules.refusals import refuse, several_chunks_of_slices
from evener.schedules.shape import ScheduleShape
from evener.schedules.slices import unit_row, units_of


def terapipe(shape: ScheduleShape) -> Schedule:
    """Run the forwards of all slices, then all backwards from the last slice to the first.

    Slices of unequal times t_i take the sum of all t_i and p - 1 times the largest one;
    ``planner.slicing.terapipe`` makes that small.  Every worker holds all slices.

    Raises ScheduleError for more than one chunk per worker.  Source: Li et al. 2021, sec. 3.
    """
    refuse("terapipe", shape, several_chunks_of_slices)
    units = units_of(shape, range(shape.num_microbatches))
    workers = tuple(
        (*unit_row(stage, Kind.F, units), *unit_row(stage, Kind.B, reversed(units)))
        for stage in range(shape.num_workers)
    )
    return Schedule(
        "terapipe", shape.num_stages, shape.num_microbatches, workers, num_slices=shape.num_slices
    )


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (shape.num_units,) * shape.num_workers


TERAPIPE = ScheduleEntry(
    name="terapipe",
    cite="Li et al., TeraPipe, ICML 2021, sec. 3",
    generator=terapipe,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
    unsupported=several_chunks_of_slices,
    slicer="terapipe",
)
