import json
import math

import pytest

from evener.errors import UsageError
from evener.ir.timeline import Timeline
from evener.report import Summary, build_report, render_html, report_json
from evener.report.data import Figure, Unit


def test_figures_of_a_prediction_and_a_measurement(predicted: Timeline, measured: Timeline) -> None:
    summary = Summary(
        "two workers",
        lower_bound_ns=10_000,
        tokens_per_step=22,
        model_flops_per_step=33,
        peak_flops_per_s=30_000_000,
    )
    data = build_report(predicted, measured=measured, summary=summary)
    figures = {figure.key: (figure.predicted, figure.measured) for figure in data.figures}
    # The step takes 11 us, twice that when measured. Each worker is busy for 6 us of it.
    assert figures["step_ns"] == (11_000, 22_000)
    assert figures["bubble_fraction"] == (pytest.approx(5 / 11), pytest.approx(5 / 11))
    # 22 tokens / 11 us = 2 million a second.
    assert figures["tokens_per_s"] == (pytest.approx(2e6), pytest.approx(1e6))
    # 33 operations / 11 us = 3 MFLOP/s of 30.
    assert figures["mfu"] == (pytest.approx(0.1), pytest.approx(0.05))
    assert figures["peak_bytes"] == (3, None)
    assert figures["lower_bound_ns"] == (10_000, None)
    assert figures["gap"] == (pytest.approx(0.1), None)


def test_what_is_unknown_is_left_out(predicted: Timeline) -> None:
    data = build_report(predicted, summary=Summary("alone"))
    assert [figure.key for figure in data.figures] == ["step_ns", "bubble_fraction", "peak_bytes"]
    assert data.workers[0].measured is None
    assert data.workers[0].cap_bytes is None
    assert data.timelines == (predicted,)


def test_no_memory_is_shown_where_no_sizes_were_known(make_timeline) -> None:
    timeline = make_timeline(
        ["0F0 0B0"], [0, 1], [1, 3], memory_bytes=[0, 0], peak_bytes=(0,), num_microbatches=1
    )
    data = build_report(timeline, summary=Summary("no sizes"))
    assert [figure.key for figure in data.figures] == ["step_ns", "bubble_fraction"]
    assert data.workers[0].predicted.peak_bytes is None
    assert "show-memory" not in render_html(data)


def test_workers_split_their_step(predicted: Timeline) -> None:
    summary = Summary("named", worker_names=("slow", "fast"), cap_bytes=(4, 5))
    slow, fast = build_report(predicted, summary=summary).workers
    # The first backward of all starts at 3 us, the last forward of all ends at 6 us.
    # worker 0: idle 2-3 (warm-up), 3-6 (residual), 8-9 (cool-down).
    assert slow.predicted.parts_ns == (6_000, 1_000, 1_000, 3_000)
    # worker 1: idle 0-2 (warm-up), 8-11 (cool-down).
    assert fast.predicted.parts_ns == (6_000, 2_000, 3_000, 0)
    assert (slow.name, slow.stages, slow.peak_in_flight, slow.cap_bytes) == ("slow", (0,), 2, 4)
    assert (fast.name, fast.stages, fast.peak_in_flight, fast.cap_bytes) == ("fast", (1,), 1, 5)
    assert (slow.predicted.peak_bytes, fast.predicted.peak_bytes) == (3, 2)


@pytest.mark.parametrize(
    ("unit", "predicted", "measured", "difference"),
    [
        (Unit.NS, 100, 110, pytest.approx(0.1)),
        (Unit.NS, 0, 0, 0.0),
        (Unit.NS, 0, 5, None),
        (Unit.NS, 100, None, None),
        (Unit.FRACTION, 0.25, 0.5, 0.25),  # 25 points, not 100 %
    ],
)
def test_difference(unit: Unit, predicted: float, measured: float, difference: float) -> None:
    assert Figure("key", "label", unit, predicted, measured).difference == difference


def test_sizes_that_do_not_fit_are_all_named(predicted: Timeline, make_timeline) -> None:
    alone = make_timeline(["0F0 0B0"], [0, 1], [1, 2], source="measured", num_microbatches=1)
    summary = Summary("x", cap_bytes=(1,), worker_names=("a", "b", "c"), stage_names=("s",))
    with pytest.raises(UsageError) as caught:
        build_report(predicted, measured=alone, summary=summary)
    assert caught.value.header == "these cannot be one report:"
    *sizes, workers = caught.value.violations
    assert sizes == [
        "1 memory caps for 2 workers; give one for each or none",
        "3 worker names for 2 workers; give one for each or none",
        "1 stage names for 2 stages; give one for each or none",
    ]
    assert workers == (
        'the timeline "predicted" has 2 workers and "measured" has 1; compare timelines of one plan'
    )


def test_json_has_the_same_content(predicted: Timeline, measured: Timeline) -> None:
    summary = Summary("title", status="found", facts=(("host", "here"),))
    data = build_report(predicted, measured=measured, summary=summary, losses=[2.0, math.nan])
    read = json.loads(json.dumps(report_json(data), allow_nan=False))
    assert read["title"] == "title"
    assert read["status"] == "found"
    assert read["facts"] == {"host": "here"}
    assert read["losses"] == [2.0, None]
    assert read["figures"]["step_ns"] == {
        "predicted": 11_000,
        "measured": 22_000,
        "difference": pytest.approx(1.0),
    }
    assert read["workers"][1]["measured"] == {
        "busy_ns": 12_000,
        "warm_up_ns": 4_000,
        "cool_down_ns": 6_000,
        "residual_ns": 0,
        "peak_bytes": None,
    }
    assert [timeline["source"] for timeline in read["timelines"]] == ["predicted", "measured"]
    assert read["timelines"][0]["end_ns"] == list(predicted.end_ns)
