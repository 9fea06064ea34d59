"""The report as plain text, for terminals, logs and reviews."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rich import box
from rich.console import Console
from rich.table import Table

from evener.ir.action import Action
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import CELL_KINDS
from evener.ir.timeline import Span, Timeline
from evener.report.data import ReportData
from evener.report.figures import time_scale
from evener.report.words import fact_rows, figure_rows, subtitle, worker_table

_LEVELS = " ▁▂▃▄▅▆▇█"


def render_text(data: ReportData, *, width: int = 100) -> str:
    """The whole report; lines of the timelines are at most ``width`` characters long."""
    parts = ["\n".join([data.summary.title, *subtitle(data)]), _figure_table(data)]
    parts += [timeline_text(timeline, width=width) for timeline in data.timelines]
    parts.append(_worker_table(data))
    if data.losses:
        parts.append(f"training loss  {sparkline(data.losses, width=min(60, width - 40))}")
    parts.append(plain_table(["", ""], [list(row) for row in fact_rows(data)], left=2))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def timeline_text(timeline: Timeline, *, width: int = 100, step: str | None = None) -> str:
    """One line per worker: what it computes when, or where that is too fine, how busy it is.

    step: how long the step is, in words, where its nanoseconds stand for another unit.

    A cell is as long as its action: a label such as ``F3``, or ``2F3`` where workers hold several
    stages and all labels fit, then ``-``. Idle time is ``.``. Where the labels do not fit, a line
    shows the busy share of each column as a bar instead.
    """
    if timeline.step_ns == 0:
        return f"{timeline.source}: an empty step"
    num_workers = timeline.schedule.num_workers
    margin = len(f"worker {num_workers - 1} ")
    grid = _Grid.of(timeline, max(10, width - margin))
    lanes = [_spans(timeline, worker) for worker in range(num_workers)]
    # What a reader wants to tell apart: the actions on microbatches.
    cells = [span for lane in lanes for span in lane if span.action.kind in CELL_KINDS]
    several = any(len(stages) > 1 for stages in timeline.schedule.stages_of_worker)
    with_stage = several and all(len(str(span.action)) < grid.room(span) for span in cells)
    is_labelled = all(len(_label(span.action)) <= grid.room(span) for span in cells)
    draw = partial(grid.cells, with_stage=with_stage) if is_labelled else grid.bars
    lines = [f"{f'worker {worker}':<{margin}}{draw(lane)}" for worker, lane in enumerate(lanes)]
    what = "" if is_labelled else "; bars show the busy share"
    if step is None:
        step = time_scale([timeline.step_ns]).with_unit(timeline.step_ns)
    return "\n".join([f"{timeline.source}: {grid.num_columns} columns are {step}{what}", *lines])


def sparkline(values: Sequence[float], *, width: int) -> str:
    """The values as a line of bars between their extremes, with the first and the last value."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    num_bars = min(width, len(values))
    bars = ""
    for place in range(num_bars):
        chunk = values[place * len(values) // num_bars : (place + 1) * len(values) // num_bars]
        mean = sum(chunk) / len(chunk)
        share = (mean - low) / (high - low) if high > low else 0.5
        bars += _LEVELS[1 + round(share * 7)] if math.isfinite(mean) else "?"
    return f"{values[0]:.4f} {bars} {values[-1]:.4f}"


def _spans(timeline: Timeline, worker: int) -> list[Span]:
    """What the worker computes, with times since the step began."""
    origin_ns = min(timeline.start_ns)
    return [
        Span(action, start_ns - origin_ns, end_ns - origin_ns)
        for action, start_ns, end_ns in timeline.spans(worker)
        if RULES[action.kind].stream is Stream.COMPUTE and end_ns > start_ns
    ]


def _label(action: Action) -> str:
    return str(action).removeprefix(str(action.stage))


@dataclass(frozen=True)
class _Grid:
    """The columns of characters on which a step is drawn."""

    ns_per_column: float
    num_columns: int

    @classmethod
    def of(cls, timeline: Timeline, columns: int) -> "_Grid":
        """Whole columns per time unit where the times allow it, else as fine as fits."""
        origin_ns = min(timeline.start_ns)
        times = (*timeline.start_ns, *timeline.end_ns)
        unit_ns = math.gcd(*(time_ns - origin_ns for time_ns in times))
        columns_per_unit = min(columns * unit_ns // timeline.step_ns, 4)
        if columns_per_unit == 0:
            return cls(timeline.step_ns / columns, columns)
        return cls(unit_ns / columns_per_unit, timeline.step_ns * columns_per_unit // unit_ns)

    def room(self, span: Span) -> float:
        """Columns that an action takes, before rounding to whole ones."""
        return (span.end_ns - span.start_ns) / self.ns_per_column

    def cells(self, spans: list[Span], with_stage: bool) -> str:
        line = ["."] * self.num_columns
        for action, start_ns, end_ns in spans:
            first, last = round(start_ns / self.ns_per_column), round(end_ns / self.ns_per_column)
            full = str(action) if with_stage else _label(action)
            label = next((t for t in (full, action.kind[0]) if len(t) <= last - first), "")
            line[first:last] = label.ljust(last - first, "-")
        return "".join(line)

    def bars(self, spans: list[Span]) -> str:
        busy = [0.0] * self.num_columns
        for _, start_ns, end_ns in spans:
            start, end = start_ns / self.ns_per_column, end_ns / self.ns_per_column
            for column in range(int(start), min(self.num_columns, math.ceil(end))):
                busy[column] += min(end, column + 1) - max(start, column)
        return "".join(_LEVELS[math.ceil(min(1.0, share) * 8 - 1e-6)] for share in busy)


def _figure_table(data: ReportData) -> str:
    rows = [list(row) for row in figure_rows(data)]
    if data.measured is None:
        return plain_table(["", data.predicted.source], [row[:2] for row in rows])
    return plain_table(["", data.predicted.source, data.measured.source, "difference"], rows)


def _worker_table(data: ReportData) -> str:
    table = worker_table(data)
    rows = []
    for name, stages, lines in table.workers:
        for place, (source, cells) in enumerate(lines):
            rows.append([*((name, stages) if place == 0 else ("", "")), source, *cells])
    return plain_table(["worker", "stages", "", *table.headings], rows, left=3)


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Columns as wide as their widest text; the first ``left`` ones start at their left edge."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(headings))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    # Wide enough for any table: cutting numbers off would be worse than long lines.
    console = Console(file=file, width=1000, color_system=None, markup=False, emoji=False)
    console.print(table)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return "\n".join(line for line in lines if line)
