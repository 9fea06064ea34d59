"""A timeline as a still picture: an SVG for a README, a page or a paper."""

import math
from collections.abc import Iterator
from html import escape
from itertools import pairwise

from evener.ir.action import Action, Kind
from evener.ir.rules import RULES, Stream
from evener.ir.timeline import Timeline
from evener.report.figures import Scale, time_scale
from evener.report.palette import DARK_PAPER, LIGHT_PAPER, NUM_SHADES, PALETTE, shades, text_on

_LEFT, _RIGHT, _TOP, _LANE, _GAP, _BOTTOM = 74, 10, 6, 26, 5, 54
_FONT = 12
_CHARACTER = 7.8  # width of a character at this font size, in pixels


def timeline_svg(
    timeline: Timeline,
    *,
    width: int = 960,
    full_ns: int | None = None,
    unit: Scale | None = None,
) -> str:
    """What every worker computes when, as the text of an SVG file ``width`` pixels wide.

    full_ns: the time that the width stands for, to compare pictures; the step if left out.
    unit: of the axis; a fitting one if left out.

    One lane per worker, a rectangle per compute action (half as high for those of a braid, one over
    the other), labelled where the label fits, with a time axis and a legend. Light or dark as the
    reader's screen is. The same timeline gives the same text.
    """
    num_workers = timeline.schedule.num_workers
    lanes_height = num_workers * (_LANE + _GAP)
    height = _TOP + lanes_height + _BOTTOM
    scale = (width - _LEFT - _RIGHT) / max(1, timeline.step_ns, full_ns or 0)
    title = escape(f"{timeline.schedule.name}, {timeline.source}")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="system-ui, sans-serif" '
        f'font-size="{_FONT}">'
    )
    parts = [
        opening,
        f"<title>{title}</title>",
        f"<style>{_style(timeline)}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    for worker in range(num_workers):
        parts += _lane(timeline, worker, scale)
    unit = unit or time_scale([timeline.step_ns])
    parts += _axis(timeline.step_ns, unit, scale, _TOP + lanes_height)
    parts += _legend(timeline, height - 14)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _kinds(timeline: Timeline) -> list[Kind]:
    times = zip(timeline.start_ns, timeline.end_ns, strict=True)
    present = {
        action.kind
        for (_, action), (start_ns, end_ns) in zip(timeline.schedule.actions(), times, strict=True)
        if end_ns > start_ns
    }
    return [k for k in Kind if k in present and RULES[k].stream is Stream.COMPUTE]


def _style(timeline: Timeline) -> str:
    light = f".paper{{fill:{LIGHT_PAPER}}}.idle{{fill:#eef0f3}}.words{{fill:#4a5462}}"
    dark = f".paper{{fill:{DARK_PAPER}}}.idle{{fill:#242a33}}.words{{fill:#a7b1bf}}"
    used = min(NUM_SHADES, max(map(len, timeline.schedule.stages_of_worker)))
    for kind in _kinds(timeline):
        light += _fills(kind, shades(PALETTE[kind].light, LIGHT_PAPER)[:used])
        dark += _fills(kind, shades(PALETTE[kind].dark, DARK_PAPER)[:used])
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _fills(kind: Kind, colours: list[str]) -> str:
    return "".join(
        f".{kind}{place}{{fill:{colour}}}.on{kind}{place}{{fill:{text_on(colour)}}}"
        for place, colour in enumerate(colours)
    )


def _lane(timeline: Timeline, worker: int, scale: float) -> Iterator[str]:
    top = _TOP + worker * (_LANE + _GAP)
    middle = top + _LANE / 2 + 4
    yield f'<text class="words" x="4" y="{middle:g}">worker {worker}</text>'
    yield (
        f'<rect class="idle" x="{_LEFT}" y="{top}" width="{timeline.step_ns * scale:g}" '
        f'height="{_LANE}"/>'
    )
    origin_ns = min(timeline.start_ns)
    stages = timeline.schedule.stages_of_worker[worker]
    halves = _halves(timeline, worker)
    for action, start_ns, end_ns in timeline.spans(worker):
        if RULES[action.kind].stream is not Stream.COMPUTE or end_ns == start_ns:
            continue
        half = halves.get(action)
        y = top + (_LANE / 2 if half else 0)
        room = _LANE if half is None else _LANE / 2 - 0.5
        left, size = _LEFT + (start_ns - origin_ns) * scale, (end_ns - start_ns) * scale
        place = stages.index(action.stage) if action.stage in stages else 0
        name = f"{action.kind}{min(place, NUM_SHADES - 1)}"
        # A hair of paper keeps neighbours apart.
        yield (
            f'<rect class="{name}" x="{left:.2f}" y="{y:g}" '
            f'width="{max(size - 0.8, 0.4):.2f}" height="{room:g}"/>'
        )
        label = _label(action, size)
        if label:
            base = middle if half is None else y + room - 2
            yield (
                f'<text class="on{name}" x="{left + size / 2:.2f}" y="{base:g}" '
                f'text-anchor="middle">{escape(label)}</text>'
            )


def _halves(timeline: Timeline, worker: int) -> dict[Action, int]:
    """Which half of the lane an action has that shares its time with the other of its braid."""
    halves: dict[Action, int] = {}
    for first, second in pairwise(timeline.spans(worker)):
        if first.action in timeline.schedule.braids and first[1:] == second[1:]:
            halves |= {first.action: 0, second.action: 1}
    return halves


def _label(action: Action, room: float) -> str:
    """Kind and unit, or the unit alone; the stage is told by the lane and the shade."""
    short = str(action).removeprefix(str(action.stage))
    unit = "" if action.microbatch is None else short.removeprefix(str(action.kind))
    return next((c for c in (short, unit) if len(c) * _CHARACTER + 3 <= room), "")


def _axis(step_ns: int, unit: Scale, scale: float, top: int) -> Iterator[str]:
    raw = 90 / scale / unit.size
    power = 10 ** math.floor(math.log10(raw))
    tick_ns = max(1, unit.size * next(f * power for f in (1, 2, 5, 10) if f * power >= raw))
    for tick in range(int(step_ns / tick_ns) + 1):
        x = _LEFT + tick * tick_ns * scale
        anchor = "start" if tick == 0 else "middle"
        text = f"{tick * tick_ns / unit.size:g}" + (f" {unit.unit}" if tick == 0 else "")
        yield (
            f'<text class="words" x="{x:.2f}" y="{top + 13}" text-anchor="{anchor}">'
            f"{text.rstrip()}</text>"
        )


def _legend(timeline: Timeline, base: int) -> Iterator[str]:
    x = float(_LEFT)
    for kind in _kinds(timeline):
        words = PALETTE[kind].words
        yield f'<rect class="{kind}0" x="{x:g}" y="{base - 10}" width="14" height="12"/>'
        yield f'<text class="words" x="{x + 19:g}" y="{base}">{words}</text>'
        x += 19 + len(words) * 6.4 + 18
    if any(len(stages) > 1 for stages in timeline.schedule.stages_of_worker):
        yield f'<text class="words" x="{x:g}" y="{base}">paler: later stages of a worker</text>'
