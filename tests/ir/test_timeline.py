"""Timelines, in memory and as JSON."""

import json
from array import array
from typing import Any

import pytest

from evener.errors import EvenerError
from evener.ir.schedule import Schedule
from evener.ir.text import parse_schedule
from evener.ir.timeline import Span, Timeline
from evener.ir.timeline_json import timeline_from_json, timeline_to_json

SCHEDULE = parse_schedule("# schedule x\n# stages 2\n# microbatches 1\n0F0 0B0\n1F0 1B0\n")


def make_timeline(**changes: Any) -> Timeline:
    # Flat order 0F0 0B0 1F0 1B0; the first start is at 5, the last end at 45.
    facts: dict[str, Any] = {
        "source": "predicted",
        "schedule": SCHEDULE,
        "start_ns": array("q", [5, 35, 15, 20]),
        "end_ns": array("q", [15, 45, 20, 35]),
        "memory_bytes": array("q", [1, 0, 1, 0]),
        "peak_bytes": (1, 1),
    }
    return Timeline(**(facts | changes))


def test_a_step_runs_from_the_first_start_to_the_last_end() -> None:
    assert make_timeline().step_ns == 40
    empty = Timeline("predicted", Schedule("x", 1, 1, ((),)), array("q"), array("q"))
    assert empty.step_ns == 0


def test_spans_are_those_of_one_worker() -> None:
    timeline = make_timeline()
    assert timeline.first_of_worker == (0, 2, 4)
    assert list(timeline.spans(1)) == [
        Span(SCHEDULE.workers[1][0], 15, 20),
        Span(SCHEDULE.workers[1][1], 20, 35),
    ]


def test_a_timeline_reads_back() -> None:
    for timeline in (make_timeline(), make_timeline(memory_bytes=array("q"), peak_bytes=())):
        assert timeline_from_json(timeline_to_json(timeline)) == timeline


def refusal(text: str) -> str:
    with pytest.raises(EvenerError) as caught:
        timeline_from_json(text, file="run.json")
    return str(caught.value)


def test_what_is_wrong_is_told_at_once() -> None:
    values = json.loads(timeline_to_json(make_timeline()))
    values |= {"start_ns": [1], "memory_bytes": [1], "peak_bytes": [1, 2, 3], "end_ns": []}
    assert refusal(json.dumps(values)) == (
        "run.json is not a timeline that can be used:\n"
        "  run.json: start_ns: has 1 values for 4 actions\n"
        "  run.json: end_ns: has 0 values for 4 actions\n"
        "  run.json: memory_bytes: has 1 values for 4 actions\n"
        "  run.json: peak_bytes: has 3 values for 2 workers"
    )
    values |= {"start_ns": [1.5], "colour": "red", "version": 1}
    assert refusal(json.dumps(values)).splitlines()[1:] == [
        "  run.json: start_ns[0]: 1.5 should be a whole number",
        (
            "  run.json: colour: unknown key; known: version, source, schedule, start_ns, end_ns, "
            "memory_bytes, peak_bytes"
        ),
    ]


def test_what_is_no_timeline_is_refused() -> None:
    assert refusal("{") == (
        "run.json is not a timeline that can be used:\n"
        "  run.json:1: not JSON at column 2: Expecting property name enclosed in double quotes; "
        "`evener simulate` and `evener train` write timelines"
    )
