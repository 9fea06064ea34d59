"""Schedules side by side: a table as text or as one HTML file with a picture of each."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import inf
from pathlib import Path

from evener.ir.freezing import WHOLE_PPM
from evener.planner.compare import ComparedSchedule, Comparison
from evener.report.figures import Scale, format_share, memory_scale, time_scale
from evener.report.picture import timeline_svg
from evener.report.text import plain_table

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_WIDEST = 960
_MOST_DRAWN = 5000


@dataclass(frozen=True)
class Measures:
    """How the amounts of a comparison are written.

    time: from nanoseconds. memory: from bytes. message_size: from bytes; None where messages have
    no size. note: what a reader must know of the units. axis: of the pictures; a fitting unit if
    left out.
    """

    time: Callable[[int], str]
    memory: Callable[[int], str]
    message_size: Callable[[int], str] | None = None
    note: str = ""
    axis: Scale | None = None


def measures_of(comparison: Comparison) -> Measures:
    """For times in nanoseconds and sizes in bytes: one unit for each column."""
    rows = comparison.compared
    return Measures(
        time=time_scale(schedule.step_ns for schedule in rows).with_unit,
        memory=memory_scale(schedule.peak_bytes for schedule in rows).with_unit,
        message_size=memory_scale(schedule.message_bytes for schedule in rows).with_unit,
    )


@dataclass(frozen=True)
class Cell:
    """A text, and the number by which a column is sorted (None: by the text)."""

    text: str
    key: float | None = None


def comparison_headings(comparison: Comparison, measures: Measures) -> list[str]:
    """Over the cells of ``comparison_cells``."""
    sent = ["sent"] if measures.message_size else []
    offloaded = ["offloaded"] if comparison.has_offload else []
    side_work = ["side work"] if comparison.has_side_work else []
    freezing = ["frozen step", "frozen", "evenly"] if comparison.has_freezing else []
    return [
        *("schedule", "stages", "step time", "bubble", "gap", "peak memory", "in flight"),
        *("messages", *sent, "gradient sums", *offloaded, *side_work, *freezing),
    ]


def comparison_cells(comparison: Comparison, measures: Measures) -> list[list[Cell]]:
    """One row per schedule that fits, fastest first."""

    def cells(schedule: ComparedSchedule) -> list[Cell]:
        gap, bubble = comparison.gap(schedule), schedule.bubbles.bubble_fraction
        row = [
            Cell(schedule.entry.name),
            Cell(str(schedule.shape.num_stages), schedule.shape.num_stages),
            Cell(measures.time(schedule.step_ns), schedule.step_ns),
            Cell(format_share(bubble), bubble),
            Cell(format_share(gap), gap),
            Cell(measures.memory(schedule.peak_bytes), schedule.peak_bytes),
            Cell(str(max(schedule.peak_in_flight)), max(schedule.peak_in_flight)),
            Cell(f"{schedule.num_messages:,}", schedule.num_messages),
        ]
        if measures.message_size:
            size = schedule.message_bytes
            row.append(Cell(measures.message_size(size), size))
        row.append(Cell(str(schedule.num_reduces), schedule.num_reduces))
        if comparison.has_offload:
            row.append(Cell(str(schedule.num_offloaded), schedule.num_offloaded))
        side_work = [_side_work(schedule)] if comparison.has_side_work else []
        return [*row, *side_work, *_frozen(schedule, measures)]

    return [cells(schedule) for schedule in comparison.compared]


def _side_work(schedule: ComparedSchedule) -> Cell:
    steps = schedule.num_side_steps
    if steps is None:
        return Cell("does not fit", inf)
    return Cell("every step" if steps == 1 else f"every {steps} steps", steps)


def _frozen(schedule: ComparedSchedule, measures: Measures) -> list[Cell]:
    """The step with frozen parameters, their share, and the step with that share everywhere."""
    if schedule.frozen is None:
        return []
    step_ns, mean_ppm, uniform_ns = schedule.frozen
    return [
        Cell(measures.time(step_ns), step_ns),
        Cell(format_share(mean_ppm / WHOLE_PPM), mean_ppm),
        Cell(measures.time(uniform_ns), uniform_ns),
    ]


def comparison_text(comparison: Comparison, measures: Measures) -> str:
    """The table, the lower bound, and what was refused, for a terminal."""
    rows = [[cell.text for cell in row] for row in comparison_cells(comparison, measures)]
    parts = [
        plain_table(comparison_headings(comparison, measures), rows),
        _bound(comparison, measures),
    ]
    if comparison.refused:
        lines = [
            f"{refused.entry.name}, {refused.shape.num_stages} stages: {refused.reason}"
            for refused in comparison.refused
        ]
        parts.append("\n  ".join(["refused", *lines]))
    return "\n\n".join(parts)


def write_comparison(path: Path, comparison: Comparison, measures: Measures, *, title: str) -> None:
    """Write one HTML file that needs no network and no other file."""
    path.write_text(comparison_html(comparison, measures, title=title), encoding="utf-8")


def comparison_html(comparison: Comparison, measures: Measures, *, title: str) -> str:
    """A table that can be sorted by each column, and a timeline of each schedule.

    Timelines with more than 5000 compute actions are left out: nobody could see them.
    """
    viewer = files("evener.report") / "viewer"
    slots = {
        "title": escape(title),
        "subtitle": escape(_bound(comparison, measures)),
        "table": _table(comparison, measures),
        "refused": _refused(comparison),
        "pictures": _pictures(comparison, measures),
        "style": (viewer / "viewer.css").read_text(encoding="utf-8"),
        "script": (viewer / "comparison.js").read_text(encoding="utf-8"),
    }
    page = (viewer / "comparison.html").read_text(encoding="utf-8")
    return _SLOT.sub(lambda match: slots[match[1]], page)


def _bound(comparison: Comparison, measures: Measures) -> str:
    bound = f"no schedule can take less than {measures.time(comparison.lower_bound_ns)}"
    if comparison.has_freezing:
        bound += " with nothing frozen"
    return f"{bound}; {measures.note}" if measures.note else bound


def _table(comparison: Comparison, measures: Measures) -> str:
    headings = "".join(
        f'<th scope="col"{_left(place)}><button type="button">{escape(heading)}</button></th>'
        for place, heading in enumerate(comparison_headings(comparison, measures))
    )
    rows = "".join(
        f"<tr>{''.join(_cells(row, place))}</tr>"
        for place, row in enumerate(comparison_cells(comparison, measures))
    )
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(row: list[Cell], place: int) -> Iterable[str]:
    name, *numbers = row
    yield f'<th scope="row" class="text"><a href="#schedule-{place}">{escape(name.text)}</a></th>'
    for cell in numbers:
        yield f'<td data-key="{cell.key}">{escape(cell.text)}</td>'


def _left(place: int) -> str:
    return ' class="text"' if place == 0 else ""


def _refused(comparison: Comparison) -> str:
    if not comparison.refused:
        return ""
    rows = "".join(
        f"<dt>{escape(refused.entry.name)}, {refused.shape.num_stages} stages</dt>"
        f"<dd>{escape(refused.reason)}</dd>"
        for refused in comparison.refused
    )
    return f'<section><h2>Refused</h2><dl class="facts">{rows}</dl></section>'


def _pictures(comparison: Comparison, measures: Measures) -> str:
    longest_ns = max((schedule.timeline.step_ns for schedule in comparison.compared), default=1)
    return "".join(
        f'<section class="picture" id="schedule-{place}">'
        f"<h2>{escape(schedule.entry.name)}, {schedule.shape.num_stages} stages: "
        f"{escape(measures.time(schedule.step_ns))}</h2>"
        f"<p>{escape(schedule.entry.cite)}</p>"
        f"{_picture(schedule, longest_ns, measures.axis)}</section>"
        for place, schedule in enumerate(comparison.compared)
    )


def _picture(schedule: ComparedSchedule, longest_ns: int, axis: Scale | None) -> str:
    """On the same time scale for all."""
    if schedule.timeline.schedule.num_actions > _MOST_DRAWN:
        return f"<p>More than {_MOST_DRAWN:,} actions: not drawn.</p>"
    return timeline_svg(schedule.timeline, width=_WIDEST, full_ns=longest_ns, unit=axis)
