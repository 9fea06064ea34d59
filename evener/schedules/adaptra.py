"""Adaptra: enough forwards in advance that a slow link does not stall the pipeline.

Wu et al., "Attack of the Bubbles: Straggler-Resilient Pipeline Parallelism for Large Model
Training" (Adaptra, later PipeMorph), NSDI 2026 (arXiv 2504.19232), section 4.
"""

from collections.abc import Sequence

from evener.ir.schedule import Schedule
from evener.schedules.entry import UNIT_TIMES, PipelineTimes, ScheduleEntry, StageTimes
from evener.schedules.list_scheduler import ListWorld, Priorities, capped
from evener.schedules.refusals import refuse_several_chunks, several_chunks
from evener.schedules.shape import ScheduleShape
from evener.schedules.zb_h2 import ZB_H2


def adaptra(shape: ScheduleShape, times: PipelineTimes | None = None) -> Schedule:
    """Warm up as long as the links ask for, then take I before F before W.

    Stage i starts with x_i forwards, x_{p-1} = 1 and x_i = x_{i+1} + 2 + ceil(c_i / tF_i) for a
    message time c_i to the next stage.  Two more than the next stage are what a link without delay
    needs to keep both ends busy; every further one hides tF_i of the delay.  W only fills waits, so
    without a limit most would be put off to the end; here no worker holds more than x_0
    microbatches, which costs nothing in the paper's examples.  A cap on memory is kept, at the
    price of the delay that then shows.  With equal times and no delay it is as fast as ``zb_h2``
    in the same memory, for m >= 2p - 1.

    Raises ScheduleError for more than one chunk per worker and for a cap below one microbatch.
    Source: Wu et al. 2026, sec. 4.
    """
    refuse_several_chunks("adaptra", shape)
    if times is None:
        times = PipelineTimes.equal(shape.num_stages, UNIT_TIMES)
    forwards = warm_ups(times)
    workers = range(shape.num_workers)
    world = ListWorld(
        capped(times, workers, num_held=forwards[0]),
        num_workers=shape.num_workers,
        num_microbatches=shape.num_microbatches,
        workers=workers,
    )
    return world.run(Priorities(least_forwards=forwards)).schedule("adaptra")


def warm_ups(times: PipelineTimes) -> tuple[int, ...]:
    """Per stage, how many forwards it runs before its first backward."""
    counts = [1]
    for message_ns, forward_ns in zip(
        reversed(_slower_way(times)), reversed(times.forward_ns[:-1]), strict=True
    ):
        counts.append(counts[-1] + 2 + -(-message_ns // max(1, forward_ns)))
    return tuple(reversed(counts))


def _slower_way(times: PipelineTimes) -> Sequence[int]:
    """Per link, the message time; the paper has the same in both directions."""
    both = zip(times.forward_message_ns, times.backward_message_ns, strict=True)
    return [max(pair) for pair in both]


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    """That of ZB-H2."""
    return ZB_H2.makespan_ns(shape, times) if _fills_the_pipeline(shape) else None


def _fills_the_pipeline(shape: ScheduleShape) -> bool:
    return shape.num_microbatches >= 2 * shape.num_workers - 1


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    """All that the first worker takes in before the first gradient is back."""
    return (min(shape.num_microbatches, 2 * shape.num_workers - 1),) * shape.num_workers


ADAPTRA = ScheduleEntry(
    name="adaptra",
    cite="Wu et al., Attack of the Bubbles (Adaptra, PipeMorph), NSDI 2026, sec. 4",
    generator=adaptra,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=several_chunks,
    adapted=adaptra,
)
