"""The texts of a report that its HTML form and its text form share."""

from collections.abc import Iterator
from dataclasses import dataclass

from evener.report.data import Figure, Occupancy, ReportData, Unit, WorkerRow
from evener.report.figures import (
    format_change,
    format_share,
    memory_scale,
    time_scale,
)

UNKNOWN = "-"
PARTS = ("busy", "warm-up", "cool-down", "residual")


def subtitle(data: ReportData) -> list[str]:
    """One or two sentences under the title."""
    schedule = data.predicted.schedule
    sizes = (
        f"{schedule.name}: {_count(schedule.num_workers, 'worker')}, "
        f"{_count(schedule.num_stages, 'stage')}, "
        f"{_count(schedule.num_microbatches, 'microbatch', 'microbatches')}"
        f"{f' in {schedule.updates.number} updates' if schedule.updates.number > 1 else ''}, "
        f"{_count(schedule.num_actions, 'action')}"
    )
    first = f"{data.summary.model}, {sizes}" if data.summary.model else sizes
    return [first, data.summary.status] if data.summary.status else [first]


def figure_rows(data: ReportData) -> Iterator[tuple[str, str, str, str]]:
    """Per figure its label and its predicted value, measured value and difference as text.

    What is unknown is an empty text.
    """
    for figure in data.figures:
        values = (figure.predicted, figure.measured)
        texts = ["" if value is None else _format(figure, value) for value in values]
        yield figure.label, texts[0], texts[1], _format_difference(figure)


@dataclass(frozen=True)
class WorkerTable:
    """The table of workers as texts.

    headings: over the cells. workers: per worker its name, its stages, and one or two lines
    (where the times come from, one text per heading).
    """

    headings: tuple[str, ...]
    workers: tuple[tuple[str, str, tuple[tuple[str, tuple[str, ...]], ...]], ...]


def worker_table(data: ReportData) -> WorkerTable:
    """How each worker spends the step, all times in one unit and all sizes in another."""
    halves = [half for row in data.workers for half in (row.predicted, row.measured) if half]
    peaks = [half.peak_bytes for half in halves if half.peak_bytes is not None]
    caps = [row.cap_bytes for row in data.workers if row.cap_bytes is not None]
    times = time_scale(timeline.step_ns for timeline in data.timelines)
    sizes = memory_scale([*peaks, *caps])
    parts = tuple(f"{part}, {times.unit}" for part in PARTS)
    known = {"peak": peaks, "cap": caps}
    memory = tuple(f"{name}, {sizes.unit}" for name, values in known.items() if values)

    def cells(row: WorkerRow, half: Occupancy) -> tuple[str, ...]:
        step_ns = sum(half.parts_ns)
        idle = 1 - half.busy_ns / step_ns if step_ns else 0.0
        texts = [*map(times.format, half.parts_ns), format_share(idle), str(row.peak_in_flight)]
        if peaks:
            texts.append(UNKNOWN if half.peak_bytes is None else sizes.format(half.peak_bytes))
        if caps:
            texts.append(UNKNOWN if row.cap_bytes is None else sizes.format(row.cap_bytes))
        return tuple(texts)

    def lines(row: WorkerRow) -> tuple[tuple[str, tuple[str, ...]], ...]:
        named = zip(data.timelines, (row.predicted, row.measured), strict=False)
        return tuple((timeline.source, cells(row, half)) for timeline, half in named if half)

    return WorkerTable(
        (*parts, "idle", "in flight", *memory),
        tuple(
            (f"{row.worker} {row.name}".strip(), ", ".join(map(str, row.stages)), lines(row))
            for row in data.workers
        ),
    )


def fact_rows(data: ReportData) -> list[tuple[str, str]]:
    """Names and values for the last table."""
    schedule = data.predicted.schedule
    rows = [("schedule", schedule.name)]
    if data.summary.model:
        rows.append(("model", data.summary.model))
    for stage, name in enumerate(data.summary.stage_names):
        workers = ", ".join(map(str, schedule.workers_of_stage[stage]))
        noun = "worker" if len(schedule.workers_of_stage[stage]) == 1 else "workers"
        rows.append((f"stage {stage}", f"{name} on {noun} {workers}"))
    if data.losses:
        rows.append(("loss, first to last step", f"{data.losses[0]:.4f} to {data.losses[-1]:.4f}"))
    return [*rows, *data.summary.facts]


def _format(figure: Figure, value: float) -> str:
    match figure.unit:
        case Unit.NS:
            return time_scale([value]).with_unit(value)
        case Unit.BYTES:
            return memory_scale([value]).with_unit(value)
        case Unit.FRACTION:
            return format_share(value)
        case Unit.PER_S:
            return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _format_difference(figure: Figure) -> str:
    difference = figure.difference
    if difference is None:
        return ""
    if figure.unit is Unit.FRACTION and difference != 0:
        return f"{100 * difference:+.2f} points"
    return format_change(difference)


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
