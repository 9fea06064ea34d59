"""The loss curve as an SVG that stands inside a page and takes its colours from it."""

import math
from collections.abc import Iterator, Sequence

_WIDTH, _HEIGHT = 760, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 12, 30
_MAX_POINTS = 700


def loss_svg(losses: Sequence[float]) -> str:
    """The curve of at least one loss, one per step, as an ``<svg>`` element.

    Losses that are not finite leave a gap. Of many steps the lowest and the highest of each run
    of neighbours are kept.
    """
    finite = [loss for loss in losses if math.isfinite(loss)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def x(step: int) -> float:
        return _LEFT + step * (_WIDTH - _LEFT - _RIGHT) / max(1, len(losses) - 1)

    def y(loss: float) -> float:
        return _TOP + (high - loss) * (_HEIGHT - _TOP - _BOTTOM) / (high - low)

    grid = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in ticks
    )
    steps = "".join(
        f'<text x="{x(step):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{text}</text>'
        for step, anchor, text in _step_labels(len(losses))
    )
    curves = "".join(
        f'<polyline class="curve" points="{" ".join(f"{x(i):.1f},{y(v):.2f}" for i, v in run)}"/>'
        for run in _runs(losses)
    )
    label = f"Training loss of {len(losses)} steps, from {losses[0]:.4g} to {losses[-1]:.4g}"
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{grid}{steps}{curves}</svg>"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Three to seven round numbers of which the outer ones enclose [low, high]."""
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _step_labels(num_steps: int) -> Iterator[tuple[int, str, str]]:
    """(step counted from 0, SVG anchor, text counted from 1) along the bottom."""
    yield 0, "start", "step 1"
    if num_steps > 2:
        yield num_steps // 2, "middle", f"{num_steps // 2 + 1:,}"
    if num_steps > 1:
        yield num_steps - 1, "end", f"{num_steps:,}"


def _runs(losses: Sequence[float]) -> Iterator[list[tuple[int, float]]]:
    """The points to draw as unbroken runs of (step, loss)."""
    run: list[tuple[int, float]] = []
    for step, loss in _thinned(losses):
        if math.isfinite(loss):
            run.append((step, loss))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _thinned(losses: Sequence[float]) -> Iterator[tuple[int, float]]:
    size = -(-len(losses) // (_MAX_POINTS // 2))
    if size <= 2:
        yield from enumerate(losses)
        return
    for first in range(0, len(losses), size):
        chunk = range(first, min(first + size, len(losses)))
        broken = [step for step in chunk if not math.isfinite(losses[step])]
        kept = {*broken[:1]}
        if not broken:
            kept = {min(chunk, key=losses.__getitem__), max(chunk, key=losses.__getitem__)}
        yield from ((step, losses[step]) for step in sorted(kept))
