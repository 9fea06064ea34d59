"""Where the time of a step goes: work, and three kinds of bubble."""

from collections.abc import Iterable
from dataclasses import dataclass

from evener.ir.action import Kind
from evener.ir.rules import RULES, Stream
from evener.ir.timeline import Span, Timeline


@dataclass(frozen=True)
class Bubbles:
    """Per worker, in nanoseconds; the four parts of each worker add up to the step.

    step_ns: from the first start to the last end, messages included.
    busy_ns: compute actions run.
    warm_up_ns: idle before the first backward of any worker starts; all idle time if none runs.
    cool_down_ns: idle after the last forward of any worker has ended, warm-up left out.
    residual_ns: idle in between.
    """

    step_ns: int
    busy_ns: tuple[int, ...]
    warm_up_ns: tuple[int, ...]
    cool_down_ns: tuple[int, ...]
    residual_ns: tuple[int, ...]

    @property
    def idle_ns(self) -> tuple[int, ...]:
        return tuple(self.step_ns - busy_ns for busy_ns in self.busy_ns)

    @property
    def bubble_fraction(self) -> float:
        """Idle time of all workers as a part of their whole time; 0 for an empty step."""
        if self.step_ns == 0:
            return 0.0
        return sum(self.idle_ns) / (len(self.busy_ns) * self.step_ns)

    @classmethod
    def of_step(
        cls,
        step_ns: int,
        busy_ns: tuple[int, ...],
        warm_up_ns: tuple[int, ...],
        cool_down_ns: tuple[int, ...],
    ) -> "Bubbles":
        """What is neither work nor warm-up nor cool-down is residual."""
        parts = zip(busy_ns, warm_up_ns, cool_down_ns, strict=True)
        residual_ns = tuple(step_ns - sum(part) for part in parts)
        return cls(step_ns, busy_ns, warm_up_ns, cool_down_ns, residual_ns)


def bubbles(timeline: Timeline) -> Bubbles:
    """Split the idle time of each worker, whether the timeline is predicted or measured."""
    if not timeline.start_ns:
        nothing = (0,) * timeline.schedule.num_workers
        return Bubbles.of_step(0, nothing, nothing, nothing)
    begin_ns, end_ns = min(timeline.start_ns), max(timeline.end_ns)
    computes = [
        [span for span in timeline.spans(worker) if _is_compute(span)]
        for worker in range(timeline.schedule.num_workers)
    ]
    spans = [span for worker in computes for span in worker]
    backwards = [span.start_ns for span in spans if span.action.kind in (Kind.B, Kind.I)]
    forwards = [span.end_ns for span in spans if span.action.kind is Kind.F]
    # The two actions of a braid share their time.
    lanes = [{(span.start_ns, span.end_ns) for span in worker} for worker in computes]
    warm_ns = min(backwards, default=end_ns)
    cool_ns = max(warm_ns, max(forwards, default=begin_ns))
    return Bubbles.of_step(
        end_ns - begin_ns,
        tuple(sum(end - start for start, end in lane) for lane in lanes),
        tuple(_idle_ns(lane, begin_ns, warm_ns) for lane in lanes),
        tuple(_idle_ns(lane, cool_ns, end_ns) for lane in lanes),
    )


def _is_compute(span: Span) -> bool:
    return RULES[span.action.kind].stream is Stream.COMPUTE


def _idle_ns(lane: Iterable[tuple[int, int]], from_ns: int, to_ns: int) -> int:
    """Time between two moments in which nothing runs."""
    inside = (min(end_ns, to_ns) - max(start_ns, from_ns) for start_ns, end_ns in lane)
    return to_ns - from_ns - sum(max(0, work_ns) for work_ns in inside)
