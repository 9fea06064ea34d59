"""What a report says, computed once; ``html`` and ``text`` only write it down."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from evener.errors import UsageError
from evener.ir.memory import peak_in_flight
from evener.ir.timeline import Timeline
from evener.ir.timeline_json import timeline_to_json
from evener.report.summary import Summary
from evener.sim.stats import bubbles


class Unit(Enum):
    """What the number of a figure counts."""

    NS = "ns"
    BYTES = "bytes"
    FRACTION = "fraction"
    PER_S = "per second"


@dataclass(frozen=True)
class Figure:
    """One line of the first table: a number as predicted and as measured; None where unknown."""

    key: str
    label: str
    unit: Unit
    predicted: float | None
    measured: float | None = None

    @property
    def difference(self) -> float | None:
        """Measured against predicted: relative, but in points for what already is a fraction."""
        if self.predicted is None or self.measured is None:
            return None
        if self.unit is Unit.FRACTION:
            return self.measured - self.predicted
        if self.predicted == 0:
            return 0.0 if self.measured == 0 else None
        return self.measured / self.predicted - 1


@dataclass(frozen=True)
class Occupancy:
    """How one worker spends a step; the four parts add up to the step time."""

    busy_ns: int
    warm_up_ns: int
    cool_down_ns: int
    residual_ns: int
    peak_bytes: int | None

    @property
    def parts_ns(self) -> tuple[int, int, int, int]:
        """Busy, warm-up, cool-down and residual."""
        return self.busy_ns, self.warm_up_ns, self.cool_down_ns, self.residual_ns


@dataclass(frozen=True)
class WorkerRow:
    """One line of the table of workers."""

    worker: int
    name: str
    stages: tuple[int, ...]
    peak_in_flight: int
    cap_bytes: int | None
    predicted: Occupancy
    measured: Occupancy | None


@dataclass(frozen=True)
class ReportData:
    """All that a report shows.

    predicted, measured: the timelines; a report of one timeline has it as ``predicted``.
    figures: step time and what follows from it. workers: one row each.
    losses: training loss of each step, oldest first.
    """

    summary: Summary
    predicted: Timeline
    measured: Timeline | None
    figures: tuple[Figure, ...]
    workers: tuple[WorkerRow, ...]
    losses: tuple[float, ...]

    @property
    def timelines(self) -> tuple[Timeline, ...]:
        """The one or two timelines, predicted first."""
        return (self.predicted,) if self.measured is None else (self.predicted, self.measured)


def build_report(
    predicted: Timeline,
    *,
    measured: Timeline | None = None,
    summary: Summary,
    losses: Sequence[float] = (),
) -> ReportData:
    """Compute all figures of a report.

    Raises UsageError when the timelines or the summary are not of the same workers and stages.
    """
    _check_sizes(predicted, measured, summary)
    return ReportData(
        summary=summary,
        predicted=predicted,
        measured=measured,
        figures=_figures(predicted, measured, summary),
        workers=_worker_rows(predicted, measured, summary),
        losses=tuple(losses),
    )


def report_json(data: ReportData) -> dict[str, Any]:
    """The report as plain dictionaries, lists, numbers and texts."""
    summary = data.summary
    return {
        "title": summary.title,
        "model": summary.model,
        "status": summary.status,
        "facts": dict(summary.facts),
        "figures": {
            figure.key: {
                "predicted": figure.predicted,
                "measured": figure.measured,
                "difference": figure.difference,
            }
            for figure in data.figures
        },
        "workers": [_worker_json(row) for row in data.workers],
        # JSON has no word for what is not finite.
        "losses": [loss if math.isfinite(loss) else None for loss in data.losses],
        "timelines": [json.loads(timeline_to_json(t)) for t in data.timelines],
    }


def _worker_json(row: WorkerRow) -> dict[str, Any]:
    return {
        "worker": row.worker,
        "name": row.name,
        "stages": list(row.stages),
        "peak_in_flight": row.peak_in_flight,
        "cap_bytes": row.cap_bytes,
        "predicted": vars(row.predicted),
        "measured": None if row.measured is None else vars(row.measured),
    }


def _figures(
    predicted: Timeline, measured: Timeline | None, summary: Summary
) -> tuple[Figure, ...]:
    def figure(
        key: str, label: str, unit: Unit, value_of: Callable[[Timeline], float | None]
    ) -> Figure:
        return Figure(
            key, label, unit, value_of(predicted), None if measured is None else value_of(measured)
        )

    figures = [
        figure("step_ns", "step time", Unit.NS, lambda t: t.update_ns),
        figure("bubble_fraction", "bubble", Unit.FRACTION, lambda t: bubbles(t).bubble_fraction),
        figure(
            "tokens_per_s", "tokens/s", Unit.PER_S, lambda t: _per_s(summary.tokens_per_step, t)
        ),
        figure("mfu", "MFU", Unit.FRACTION, lambda t: _mfu(summary, t)),
        figure(
            "peak_bytes",
            "peak memory of a worker",
            Unit.BYTES,
            lambda t: max(_peaks_bytes(t), default=None),
        ),
    ]
    bound_ns = summary.lower_bound_ns
    if bound_ns:
        figures += [
            Figure("lower_bound_ns", "lower bound", Unit.NS, bound_ns),
            Figure("gap", "gap to the bound", Unit.FRACTION, predicted.update_ns / bound_ns - 1),
        ]
    return tuple(f for f in figures if f.predicted is not None or f.measured is not None)


def _per_s(amount: int | None, timeline: Timeline) -> float | None:
    if amount is None or timeline.update_ns == 0:
        return None
    return amount * 1e9 / timeline.update_ns


def _mfu(summary: Summary, timeline: Timeline) -> float | None:
    flops_per_s = _per_s(summary.model_flops_per_step, timeline)
    if flops_per_s is None or not summary.peak_flops_per_s:
        return None
    return flops_per_s / summary.peak_flops_per_s


def _worker_rows(
    predicted: Timeline, measured: Timeline | None, summary: Summary
) -> tuple[WorkerRow, ...]:
    schedule = predicted.schedule
    in_flight = peak_in_flight(schedule)
    expected = _occupancies(predicted)
    found = [None] * schedule.num_workers if measured is None else _occupancies(measured)
    return tuple(
        WorkerRow(
            worker=worker,
            name=summary.worker_names[worker] if summary.worker_names else "",
            stages=schedule.stages_of_worker[worker],
            peak_in_flight=in_flight[worker],
            cap_bytes=summary.cap_bytes[worker] if summary.cap_bytes else None,
            predicted=expected[worker],
            measured=found[worker],
        )
        for worker in range(schedule.num_workers)
    )


def _occupancies(timeline: Timeline) -> list[Occupancy]:
    split = bubbles(timeline)
    peaks_bytes = _peaks_bytes(timeline)
    return [
        Occupancy(
            busy_ns=split.busy_ns[worker],
            warm_up_ns=split.warm_up_ns[worker],
            cool_down_ns=split.cool_down_ns[worker],
            residual_ns=split.residual_ns[worker],
            peak_bytes=peaks_bytes[worker] if peaks_bytes else None,
        )
        for worker in range(timeline.schedule.num_workers)
    ]


def _peaks_bytes(timeline: Timeline) -> tuple[int, ...]:
    """The peak of each worker; empty if unknown, as when a simulation was given no sizes."""
    return timeline.peak_bytes if any(timeline.peak_bytes) else ()


def _check_sizes(predicted: Timeline, measured: Timeline | None, summary: Summary) -> None:
    num_workers, num_stages = predicted.schedule.num_workers, predicted.schedule.num_stages
    sizes = [
        ("memory caps", len(summary.cap_bytes), num_workers, "workers"),
        ("worker names", len(summary.worker_names), num_workers, "workers"),
        ("stage names", len(summary.stage_names), num_stages, "stages"),
    ]
    wrong = [
        _wrong_number(what, given, wanted, of)
        for what, given, wanted, of in sizes
        if given not in (0, wanted)
    ]
    if measured is not None and measured.schedule.num_workers != num_workers:
        wrong.append(_other_workers(predicted, measured))
    if wrong:
        raise UsageError("these cannot be one report:", wrong)


def _wrong_number(what: str, given: int, wanted: int, of: str) -> str:
    return f"{given} {what} for {wanted} {of}; give one for each or none"


def _other_workers(predicted: Timeline, measured: Timeline) -> str:
    return (
        f'the timeline "{predicted.source}" has {predicted.schedule.num_workers} workers and '
        f'"{measured.source}" has {measured.schedule.num_workers}; compare timelines of one plan'
    )
