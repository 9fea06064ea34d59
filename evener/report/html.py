"""The report as one HTML file that needs no network and no other file."""

import json
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from itertools import chain
from pathlib import Path

from evener.ir.action import Kind
from evener.ir.rules import RULES, Stream
from evener.report.curves import loss_svg
from evener.report.data import ReportData, WorkerRow
from evener.report.encode import encode_timelines
from evener.report.figures import memory_scale
from evener.report.palette import DARK_PAPER, LIGHT_PAPER, NUM_SHADES, PALETTE, shades, text_on
from evener.report.words import (
    PARTS,
    fact_rows,
    figure_rows,
    subtitle,
    worker_table,
)

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_SCRIPTS = (
    "decode.js",
    "format.js",
    "words.js",
    "layout.js",
    "paint.js",
    "overview.js",
    "viewer.js",
    "controls.js",
)


def write_report(path: Path | str, data: ReportData) -> Path:
    """Write the report to ``path`` (folders are made) and return where it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_html(data), encoding="utf-8")
    return path


def render_html(data: ReportData) -> str:
    """The report as the text of one HTML file."""
    description, block = encode_timelines(data.timelines)
    description |= _for_the_viewer(data)
    viewer = files("evener.report") / "viewer"
    slots = {
        "title": escape(data.summary.title),
        "subtitle": "".join(f"<p>{escape(line)}</p>" for line in subtitle(data)),
        "figures": _figures(data),
        "legend": _legend(data),
        "toggles": _toggles(data),
        "workers": _workers(data),
        "losses": _losses(data),
        "facts": _facts(data),
        # A "</script>" or "<!--" in a text would change where the element ends.
        "description": json.dumps(description, separators=(",", ":")).replace("<", "\\u003c"),
        "block": block,
        "style": (viewer / "viewer.css").read_text(encoding="utf-8"),
        "script": "\n".join((viewer / name).read_text(encoding="utf-8") for name in _SCRIPTS),
    }
    page = (viewer / "index.html").read_text(encoding="utf-8")
    return _SLOT.sub(lambda match: slots[match[1]], page)


def _for_the_viewer(data: ReportData) -> dict[str, object]:
    """What the script needs besides the columns: names, colours and the memory scale."""
    held = chain.from_iterable((*t.peak_bytes, *t.memory_bytes) for t in data.timelines)
    highest = max(held, default=0)
    caps = list(data.summary.cap_bytes)
    # A cap far above the curves would flatten them; then only the table shows it.
    fitting = [cap for cap in caps if cap <= 2 * highest]
    return {
        "num_shades": NUM_SHADES,
        "palette": {
            kind: {
                "words": ink.words,
                "light": [(fill, text_on(fill)) for fill in shades(ink.light, LIGHT_PAPER)],
                "dark": [(fill, text_on(fill)) for fill in shades(ink.dark, DARK_PAPER)],
            }
            for kind, ink in PALETTE.items()
        },
        "workers": [_margin_lines(data, row) for row in data.workers],
        "memory": {"top": max([highest, *fitting, 1]), "caps": caps},
    }


def _margin_lines(data: ReportData, row: WorkerRow) -> list[str]:
    """What stands under a worker's name beside its lanes, most important first."""
    lines = [row.name] if row.name else []
    noun = "stage" if len(row.stages) == 1 else "stages"
    lines.append(f"{noun} {', '.join(map(str, row.stages))}" if row.stages else "no stage")
    if row.predicted.peak_bytes is not None:
        peak = row.predicted.peak_bytes
        lines.append(f"peak {memory_scale([peak]).with_unit(peak)}")
    if row.cap_bytes is not None:
        lines.append(f"cap {memory_scale([row.cap_bytes]).with_unit(row.cap_bytes)}")
    return lines


def _figures(data: ReportData) -> str:
    cells = []
    for label, predicted, measured, difference in figure_rows(data):
        beside = [f"{data.predicted.source} {predicted}"] if measured and predicted else []
        beside += [difference] if difference else []
        lines = "".join(f'<dd class="beside">{escape(line)}</dd>' for line in beside)
        cells.append(
            f'<div class="figure"><dt>{escape(label)}</dt>'
            f'<dd class="value">{escape(measured or predicted)}</dd>{lines}</div>'
        )
    return f'<dl class="figures">{"".join(cells)}</dl>'


def _legend(data: ReportData) -> str:
    present = {
        action.kind for timeline in data.timelines for _, action in timeline.schedule.actions()
    }
    # Kinds that share a colour share an entry, named after its first kinds.
    entries: dict[tuple[str, str, bool], list[str]] = {}
    for kind in Kind:
        if kind in present:
            ink = PALETTE[kind]
            thin = RULES[kind].stream is not Stream.COMPUTE
            entries.setdefault((ink.light, ink.dark, thin), []).append(ink.words)
    items = [
        f'<li><span class="swatch{" thin" if thin else ""}" '
        f'style="--light:{light};--dark:{dark}"></span>{escape(", ".join(words))}</li>'
        for (light, dark, thin), words in entries.items()
    ]
    if data.measured is not None:
        upper, lower = escape(data.predicted.source), escape(data.measured.source)
        items.insert(0, f"<li>upper lane: {upper}, lower lane: {lower}</li>")
    if any(len(row.stages) > 1 for row in data.workers):
        items.append("<li>paler: later stages of a worker</li>")
    if data.measured is not None and any(data.measured.memory_bytes):
        source = escape(data.measured.source)
        items.append(f'<li><span class="swatch line"></span>memory, {source}</li>')
    if data.summary.cap_bytes:
        items.append('<li><span class="swatch dashed"></span>memory cap</li>')
    return f'<ul class="legend" aria-label="Colours">{"".join(items)}</ul>'


def _toggles(data: ReportData) -> str:
    names = []
    if data.measured is not None:
        names.append(("measured", data.measured.source))
    if any(timeline.schedule.is_lowered for timeline in data.timelines):
        names.append(("messages", "messages"))
    if any(any(timeline.memory_bytes) for timeline in data.timelines):
        names.append(("memory", "memory"))
    return "".join(
        f'<label><input type="checkbox" id="show-{name}" checked> {escape(label)}</label>'
        for name, label in names
    )


def _workers(data: ReportData) -> str:
    table = worker_table(data)
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in table.headings)
    bodies = "".join(
        _worker_body(row, texts) for row, texts in zip(data.workers, table.workers, strict=True)
    )
    return (
        '<section aria-labelledby="workers-heading"><div class="heading">'
        f'<h2 id="workers-heading">Workers</h2>{_split_legend()}</div>'
        '<div class="scrolled" tabindex="0" role="region" aria-labelledby="workers-heading">'
        '<table><thead><tr><th scope="col" class="text">worker</th>'
        '<th scope="col" class="text">stages</th><th scope="col" class="text">times</th>'
        f'<th scope="col" class="text">step</th>{head}</tr></thead>{bodies}</table></div></section>'
    )


def _split_legend() -> str:
    items = "".join(f'<li><span class="swatch {name}"></span>{name}</li>' for name in PARTS)
    return f'<ul class="legend" aria-label="Parts of the step">{items}</ul>'


def _worker_body(row: WorkerRow, texts: tuple[str, str, tuple]) -> str:
    name, stages, lines = texts
    first = (
        f'<th scope="rowgroup" class="text" rowspan="{len(lines)}">{escape(name)}</th>'
        f'<td class="text" rowspan="{len(lines)}">{escape(stages)}</td>'
    )
    body = ""
    for (source, cells), half in zip(lines, (row.predicted, row.measured), strict=False):
        assert half is not None, "a worker has as many lines as times"
        body += (
            f'<tr>{first}<td class="text">{escape(source)}</td>'
            f'<td class="text">{_split(half.parts_ns)}</td>'
            f"{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        )
        first = ""
    return f"<tbody{' class=pair' if len(lines) > 1 else ''}>{body}</tbody>"


def _split(parts_ns: tuple[int, ...]) -> str:
    total_ns = sum(parts_ns) or 1
    bars = "".join(
        f'<i class="{name}" style="width:{100 * part_ns / total_ns:.2f}%"></i>'
        for name, part_ns in zip(PARTS, parts_ns, strict=True)
    )
    return f'<span class="split" aria-hidden="true">{bars}</span>'


def _losses(data: ReportData) -> str:
    if not data.losses:
        return ""
    return _section("losses", "Training loss", loss_svg(data.losses))


def _facts(data: ReportData) -> str:
    return _section("facts", "About this plan", _definitions(fact_rows(data)))


def _definitions(rows: Iterable[tuple[str, str]]) -> str:
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    return f'<dl class="facts">{pairs}</dl>'


def _section(key: str, heading: str, content: str) -> str:
    return (
        f'<section aria-labelledby="{key}-heading"><h2 id="{key}-heading">{heading}</h2>'
        f"{content}</section>"
    )
