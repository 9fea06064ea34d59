"""The text form, pinned."""

import math
from array import array
from pathlib import Path

import pytest

from evener.cost.table import CostTable
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.report import Summary, build_report, render_text, timeline_text
from evener.report.text import sparkline
from evener.schedules import SCHEDULES, interleaved_one_f_one_b, zb_h1
from evener.schedules.shape import ScheduleShape
from evener.sim import simulate

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"


def test_a_whole_report(predicted: Timeline, measured: Timeline) -> None:
    summary = Summary(
        "Two workers",
        model="tiny",
        status="Found by hand.",
        tokens_per_step=22,
        cap_bytes=(4, 4),
        worker_names=("slow", "fast"),
        stage_names=("layer 0", "layer 1"),
        facts=(("host", "here"),),
    )
    data = build_report(predicted, measured=measured, summary=summary, losses=[3.0, 2.0, 1.0])
    assert render_text(data) == (GOLDEN / "two_workers.txt").read_text(encoding="utf-8")


def test_unit_times_are_drawn_in_whole_columns() -> None:
    # ZB-H1, 3 workers, 4 microbatches, F = I = W = 1: bubble (p-1)(tF+tI-tW) = 2, so 3*4+2 = 14.
    schedule = zb_h1(ScheduleShape(num_workers=3, num_microbatches=4))
    assert timeline_text(simulate(schedule, CostTable.uniform(3, 3))).splitlines() == [
        "predicted: 56 columns are 14 ns",
        "worker 0 F0--F1--F2--........I0--W0--F3--I1--W1--I2--W2--I3--W3--",
        "worker 1 ....F0--F1--....I0--F2--I1--W0--F3--I2--W1--I3--W2--W3--",
        "worker 2 ........F0--I0--F1--I1--F2--I2--W0--F3--I3--W1--W2--W3--",
    ]


def test_steps_between_two_flushes_take_no_room() -> None:
    schedule = SCHEDULES["pipedream_2bw"](ScheduleShape(2, 2, num_updates=2))
    costs = CostTable.uniform(2, 2, forward_ns=1, backward_ns=2)
    assert timeline_text(simulate(schedule, costs), width=69).splitlines() == [
        "predicted: 60 columns are 15 ns",
        "worker 0 F0--F1--........B0------F2--B1------F3--B2------....B3------",
        "worker 1 ....F0--B0------F1--B1------F2--B2------F3--B3------........",
    ]


def test_stages_are_named_where_workers_hold_several_and_there_is_room() -> None:
    schedule = interleaved_one_f_one_b(
        ScheduleShape(num_workers=2, num_microbatches=2, chunks_per_worker=2)
    )
    timeline = simulate(schedule, CostTable.uniform(2, 4))
    assert timeline_text(timeline).splitlines()[1:] == [
        "worker 0 0F0-0F1-2F0-2F1-........2B0-----....2B1-----0B0-----0B1-----",
        "worker 1 ....1F0-1F1-3F0-3B0-----3F1-3B1-----1B0-----1B1-----........",
    ]
    # 51 columns leave 3 for each of 15 time units: the labels would touch, so no stage is named.
    assert timeline_text(timeline, width=60).splitlines()[1:] == [
        "worker 0 F0-F1-F0-F1-......B0----...B1----B0----B1----",
        "worker 1 ...F0-F1-F0-B0----F1-B1----B0----B1----......",
    ]


def test_a_fine_timeline_shows_how_busy_workers_are(predicted: Timeline) -> None:
    # 11 columns of 1 us each, but "F0" needs two: one bar per column, full or empty.
    assert timeline_text(predicted, width=20).splitlines()[1:] == [
        "worker 0 ██    ██ ██",
        "worker 1   ██████   ",
    ]


def test_bars_show_shares_of_a_column(make_timeline) -> None:
    # 100 columns of 10 ns; the only action fills a quarter of the first and the last column.
    timeline = make_timeline(["0F0 0STEP 0F1"], [0, 2, 997], [2, 3, 1000])
    line = timeline_text(timeline, width=109).splitlines()[1]
    assert line == "worker 0 " + "▃" + " " * 98 + "▃"


def test_an_empty_step() -> None:
    empty = Timeline("predicted", Schedule("none", 1, 1, ((),)), array("q"), array("q"))
    assert timeline_text(empty) == "predicted: an empty step"


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([8.0, 4.0, 1.0], 10, "8.0000 █▄▁ 1.0000"),
        ([1.0, 1.0], 10, "1.0000 ▅▅ 1.0000"),
        ([2.0, math.nan, 1.0], 10, "2.0000 █?▁ 1.0000"),
        # Two columns of two steps each, the mean of each.
        ([4.0, 2.0, 1.0, 1.0], 2, "4.0000 ▆▁ 1.0000"),
    ],
)
def test_sparkline(values: list[float], width: int, line: str) -> None:
    assert sparkline(values, width=width) == line
