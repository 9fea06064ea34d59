"""The trace against the Trace Event Format, and its numbers against the timeline."""

import json
from array import array
from pathlib import Path
from typing import Any

from evener.export import chrome_trace, write_trace
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.ir.timeline import Timeline


def make_timeline(source: str = "predicted", start_of_receive_ns: int = 12) -> Timeline:
    """Two workers, one microbatch, messages of 5 ns with a latency of 2 ns.

    worker 0: 0F0 [0, 10), sends [10, 15)        ... 0RECV_B0 [37, 42), 0B0 [42, 62)
    worker 1: 1RECV_F0 [12, 17), 1F0 [17, 25), 1B0 [25, 35), sends [35, 40)
    """
    rows = ("0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0")
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Timeline(
        source,
        Schedule("by hand", 2, 1, workers),
        start_ns=array("q", [0, 10, 37, 42, start_of_receive_ns, 17, 25, 35]),
        end_ns=array("q", [10, 15, 42, 62, 17, 25, 35, 40]),
        memory_bytes=array("q", [7, 7, 8, 1, 2, 9, 3, 3]),
    )


def of_phase(trace: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def threads(trace: dict[str, Any]) -> dict[tuple[int, int], str]:
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in of_phase(trace, "M")
        if event["name"] == "thread_name"
    }


def test_slices_have_the_times_of_the_timeline_in_microseconds() -> None:
    trace = chrome_trace(make_timeline())
    names = threads(trace)
    found = [
        (event["name"], names[event["pid"], event["tid"]], event["ts"], event["dur"])
        for event in of_phase(trace, "X")
    ]
    assert found == [
        ("PP:0F0", "compute", 0.0, 0.01),
        ("PP:0SEND_F0", "send to 1", 0.01, 0.005),
        ("PP:0RECV_B0", "recv from 1", 0.037, 0.005),
        ("PP:0B0", "compute", 0.042, 0.02),
        ("PP:1RECV_F0", "recv from 0", 0.012, 0.005),
        ("PP:1F0", "compute", 0.017, 0.008),
        ("PP:1B0", "compute", 0.025, 0.01),
        ("PP:1SEND_B0", "send to 0", 0.035, 0.005),
    ]


def test_arrows_lead_from_each_send_into_its_receive() -> None:
    trace = chrome_trace(make_timeline())
    names = threads(trace)
    starts = {event["id"]: event for event in of_phase(trace, "s")}
    ends = {event["id"]: event for event in of_phase(trace, "f")}
    assert starts.keys() == ends.keys()
    arrows = [
        (starts[key]["name"], starts[key]["pid"], end["pid"], starts[key]["ts"], end["ts"])
        for key, end in ends.items()
    ]
    assert arrows == [("PP:0SEND_F0", 0, 1, 0.01, 0.012), ("PP:1SEND_B0", 1, 0, 0.035, 0.037)]
    assert names[ends["0.1"]["pid"], ends["0.1"]["tid"]] == "recv from 0"


def test_an_arrow_never_goes_back_in_time() -> None:
    # The receive was posted at 3 ns, before the send began at 10 ns.
    trace = chrome_trace(make_timeline(start_of_receive_ns=3))
    (arrow,) = [event for event in of_phase(trace, "f") if event["pid"] == 1]
    assert arrow["ts"] == 0.01


def test_two_timelines_are_processes_of_their_own_and_begin_together(tmp_path: Path) -> None:
    predicted = make_timeline()
    later = array("q", [time + 1000 for time in predicted.start_ns])
    ends = array("q", [time + 1000 for time in predicted.end_ns])
    measured = Timeline("measured", predicted.schedule, later, ends)
    trace = json.loads(
        write_trace(tmp_path / "new" / "trace.json", predicted, measured).read_text()
    )
    processes = {
        event["pid"]: event["args"]["name"]
        for event in of_phase(trace, "M")
        if event["name"] == "process_name"
    }
    assert processes == {
        0: "predicted worker 0",
        1: "predicted worker 1",
        2: "measured worker 0",
        3: "measured worker 1",
    }
    slices = of_phase(trace, "X")
    assert [e["ts"] for e in slices[:8]] == [e["ts"] for e in slices[8:]]
    assert len({event["id"] for event in of_phase(trace, "s")}) == 4


def test_memory_is_a_counter_after_each_compute_action() -> None:
    counted = [
        (event["pid"], event["ts"], event["args"]["bytes"])
        for event in of_phase(chrome_trace(make_timeline()), "C")
    ]
    assert counted == [(0, 0.01, 7), (0, 0.062, 1), (1, 0.025, 9), (1, 0.035, 3)]


def test_slices_of_one_thread_never_overlap() -> None:
    # Both receives of worker 1 are posted at once and wait; the trace deals them to two threads.
    rows = ("0F0 0SEND_F0 0F1 0SEND_F1 0B0 0B1", "1RECV_F0 1RECV_F1 1F0 1F1 1B0 1B1")
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    timeline = Timeline(
        "measured",
        Schedule("posted ahead", 2, 2, workers),
        start_ns=array("q", [0, 10, 10, 20, 60, 70, 0, 0, 15, 25, 40, 50]),
        end_ns=array("q", [10, 15, 20, 25, 70, 80, 15, 25, 25, 35, 50, 60]),
    )
    trace = chrome_trace(timeline)
    assert set(threads(trace).values()) == {
        "compute",
        "send to 1",
        "recv from 0",
        "recv from 0 (2)",
    }
    until: dict[tuple[int, int], float] = {}
    for event in sorted(of_phase(trace, "X"), key=lambda e: e["ts"]):
        key = event["pid"], event["tid"]
        assert event["ts"] >= until.get(key, 0) - 1e-9
        until[key] = event["ts"] + event["dur"]
