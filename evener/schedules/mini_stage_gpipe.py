"""Mini-stage GPipe: all microbatches through one mini-stage, then all through the next.

The schedule of Zorse (pipelines over unequal clusters): layers are dealt to the workers in several
rounds, and a worker's parameters are needed once forward and once backward per step, however many
microbatches there are.  Without that aim it is known as looped breadth-first: Lamy-Poirier,
"Breadth-First Pipeline Parallelism", MLSys 2023 (arXiv 2211.05953), section 3.
"""

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns, no_slices
from evener.schedules.refusals import refuse
from evener.schedules.row import row
from evener.schedules.shape import ScheduleShape


def mini_stage_gpipe(shape: ScheduleShape) -> Schedule:
    """Run every microbatch forward through one stage after the other, and back the same way.

    Worker w holds the stages w, p + w, 2p + w, ...  With tF and tB of one stage the bubble is
    (p-1)(tF+tB) for m >= p, as in ``interleaved_one_f_one_b``; every worker holds all microbatches
    of all its stages.  With one chunk per worker it is GPipe.

    Raises ScheduleError for slices.  Source: Zorse; Lamy-Poirier 2023, sec. 3.
    """
    refuse("mini_stage_gpipe", shape, no_slices)
    p, microbatches = shape.num_workers, range(shape.num_microbatches)
    workers = tuple(
        (
            *(f for s in stages for f in row(s, Kind.F, microbatches)),
            *(b for s in reversed(stages) for b in row(s, Kind.B, reversed(microbatches))),
        )
        for stages in (range(worker, shape.num_stages, p) for worker in range(p))
    )
    return Schedule("mini_stage_gpipe", shape.num_stages, shape.num_microbatches, workers)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return (shape.num_microbatches * shape.chunks_per_worker,) * shape.num_workers


MINI_STAGE_GPIPE = ScheduleEntry(
    name="mini_stage_gpipe",
    cite="Zorse; Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023, sec. 3",
    generator=mini_stage_gpipe,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
)
