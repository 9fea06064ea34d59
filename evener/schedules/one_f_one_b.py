"""1F1B with a flush: one forward, one backward in turn once the pipeline is full.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, section 2.2.1; the schedule is PipeDream-Flush of Narayanan et al.,
"Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, section 3.2.
"""

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.alternate import alternate
from evener.schedules.entry import ScheduleEntry, flushed_pipeline_ns
from evener.schedules.refusals import check_max_in_flight, refuse_several_chunks, several_chunks
from evener.schedules.row import row
from evener.schedules.shape import ScheduleShape


def one_f_one_b(shape: ScheduleShape, *, max_in_flight: int | None = None) -> Schedule:
    """Fill the pipeline with p - w forwards on worker w, then alternate backward and forward.

    max_in_flight: the most microbatches that a worker may hold; fewer than p cost time.

    Bubble (p-1)(tF+tB); worker w holds at most p - w microbatches.

    Raises ScheduleError for more than one chunk per worker and for a limit below 1.
    Source: Narayanan et al. 2021, sec. 2.2.1.
    """
    refuse_several_chunks("one_f_one_b", shape)
    check_max_in_flight("one_f_one_b", max_in_flight)
    warm_ups = [
        min(held, held if max_in_flight is None else max_in_flight)
        for held in _peak_in_flight(shape)
    ]
    workers = tuple(
        _actions(stage, shape.num_microbatches, warm_up) for stage, warm_up in enumerate(warm_ups)
    )
    return Schedule("one_f_one_b", shape.num_stages, shape.num_microbatches, workers)


def _actions(stage: int, num_microbatches: int, warm_up: int) -> tuple[Action, ...]:
    forward = row(stage, Kind.F, range(num_microbatches))
    backward = row(stage, Kind.B, range(num_microbatches))
    return alternate(forward, backward, in_flight=warm_up)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return tuple(
        min(shape.num_microbatches, shape.num_workers - worker)
        for worker in range(shape.num_workers)
    )


ONE_F_ONE_B = ScheduleEntry(
    name="one_f_one_b",
    cite="Narayanan et al., Megatron-LM, SC 2021, sec. 2.2.1 (PipeDream-Flush, ICML 2021)",
    generator=one_f_one_b,
    peak_in_flight=_peak_in_flight,
    makespan_ns=flushed_pipeline_ns,
    unsupported=several_chunks,
)
