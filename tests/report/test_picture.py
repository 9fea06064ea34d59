import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from evener.ir.action import Action, Kind
from evener.ir.timeline import Timeline
from evener.report import timeline_svg
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.testing.worlds import unit_costs

SVG = "{http://www.w3.org/2000/svg}"


def test_rectangles_lie_where_the_actions_do(predicted: Timeline) -> None:
    root = ElementTree.fromstring(timeline_svg(predicted, width=1184))
    bars = [
        bar.attrib for bar in root.iter(f"{SVG}rect") if bar.attrib.get("class") in ("F0", "B0")
    ]
    # (1184 - 74 - 10) / 11 us = 100 px per us, from 74 px on; the legend's two come last.
    starts = [float(bar["x"]) for bar in bars[:8]]
    assert starts == [74 + 100 * t for t in (0, 1, 6, 9, 2, 3, 5, 6)]
    assert [float(bar["width"]) for bar in bars[:2]] == [99.2, 99.2]
    assert len(bars) == 10
    labels = [text.text for text in root.iter(f"{SVG}text")]
    assert labels[:5] == ["worker 0", "F0", "F1", "B0", "B1"]
    assert labels[-2:] == ["forward", "backward"]


def test_the_same_timeline_gives_the_same_text(predicted: Timeline) -> None:
    assert timeline_svg(predicted) == timeline_svg(predicted)


def test_labels_are_left_out_where_they_do_not_fit(predicted: Timeline) -> None:
    labels = [
        t.text
        for t in ElementTree.fromstring(timeline_svg(predicted, width=260)).iter(f"{SVG}text")
    ]
    # 16 px per us: room for the microbatch of a forward, for both of a backward.
    assert labels[:5] == ["worker 0", "0", "1", "B0", "B1"]


def test_later_stages_of_a_worker_are_paler(make_timeline) -> None:
    timeline = make_timeline(["0F0 1F0 1B0 0B0"], [0, 1, 2, 3], [1, 2, 3, 4], num_microbatches=1)
    text = timeline_svg(timeline)
    root = ElementTree.fromstring(text)
    classes = [bar.attrib.get("class") for bar in root.iter(f"{SVG}rect")]
    assert classes[2:6] == ["F0", "F1", "B1", "B0"]
    assert "paler: later stages of a worker" in text


def test_the_actions_of_a_braid_lie_one_above_the_other(make_timeline) -> None:
    rows, braids = ["0F0 0F1 0B0 0B1"], frozenset({Action(0, Kind.F, 1)})
    together = make_timeline(rows, [0, 1, 1, 3], [1, 3, 3, 4])
    together = replace(together, schedule=replace(together.schedule, braids=braids))
    assert heights(together) == [26, 12.5, 12.5, 26]
    in_turn = make_timeline(rows, [0, 1, 2, 3], [1, 2, 3, 4])
    in_turn = replace(in_turn, schedule=together.schedule)
    assert heights(in_turn) == [26, 26, 26, 26]


def heights(timeline: Timeline) -> list[float]:
    root = ElementTree.fromstring(timeline_svg(timeline))
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.attrib.get("class") in ("F0", "B0")]
    return [float(bar.attrib["height"]) for bar in bars[:4]]


def test_labels_name_the_slice_or_only_the_slice_where_there_is_less_room() -> None:
    schedule = SCHEDULES["seq1f1b"](ScheduleShape(1, 1, num_slices=2))
    timeline = simulate(schedule, unit_costs(1, 1))
    # (width - 74 - 10) / 6 ns: 50 px for a forward have room for five characters, 28 px for three.
    for width, expected in (384, ["F0.0", "F0.1"]), (252, ["0.0", "0.1"]):
        root = ElementTree.fromstring(timeline_svg(timeline, width=width))
        labels = [text.text for text in root.iter(f"{SVG}text")]
        assert labels[1:3] == expected
