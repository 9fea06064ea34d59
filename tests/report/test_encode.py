"""The block decodes to the numbers of the timelines, by a reader written for the test."""

import zlib
from array import array
from base64 import b64decode
from typing import Any

from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.report.encode import encode_timelines
from evener.report.waits import waited_for

TYPES = {"u8": "B", "i32": "i", "f64": "d"}


def column(description: dict[str, Any], block: str, number: int) -> list[float]:
    kind, offset, length = description["columns"][number]
    values = array(TYPES[kind])
    assert offset % 8 == 0
    data = zlib.decompress(b64decode(block))
    values.frombytes(data[offset : offset + length * values.itemsize])
    return list(values)


def test_one_schedule_is_written_once_for_both_timelines(
    predicted: Timeline, measured: Timeline
) -> None:
    description, block = encode_timelines((predicted, measured))
    assert len(description["schedules"]) == 1
    one, two = description["timelines"]
    assert (one["schedule"], two["schedule"]) == (0, 0)
    assert "partner" not in one
    assert column(description, block, one["start"]) == list(predicted.start_ns)
    # Times count from the beginning of the step: the 500 ns of the clock are gone.
    assert column(description, block, two["start"]) == [2 * t for t in predicted.start_ns]
    lengths = [e - s for s, e in zip(measured.start_ns, measured.end_ns, strict=True)]
    assert column(description, block, two["duration"]) == lengths
    assert column(description, block, one["waited"]) == waited_for(predicted)
    assert column(description, block, one["memory"]) == list(predicted.memory_bytes)
    assert "memory" not in two


def test_actions_can_be_spelled_from_the_columns(predicted: Timeline) -> None:
    description, block = encode_timelines((predicted,))
    (schedule,) = description["schedules"]
    kinds = [description["kinds"][int(k)][0] for k in column(description, block, schedule["kind"])]
    stages = column(description, block, schedule["stage"])
    microbatches = column(description, block, schedule["microbatch"])
    assert [
        f"{stage}{kind}{microbatch}"
        for stage, kind, microbatch in zip(stages, kinds, microbatches, strict=True)
    ] == [str(action) for _, action in predicted.schedule.actions()]
    assert schedule["first"] == [0, 8, 16]
    assert schedule["stages"] == [[0], [1]]


def test_rare_fields_are_there_only_where_they_are_used(make_timeline) -> None:
    timeline = make_timeline(
        ["0F0.0 0F0.1 0X:idle 0X:busy 0X:idle 0B0.1 0B0.0"], range(7), range(1, 8)
    )
    description, block = encode_timelines((timeline,))
    (schedule,) = description["schedules"]
    assert column(description, block, schedule["slice"]) == [0, 1, -1, -1, -1, 1, 0]
    assert schedule["names"] == ["idle", "busy"]
    assert column(description, block, schedule["name_of"]) == [-1, -1, 0, 1, 0, -1, -1]
    assert "peer" not in schedule


def test_different_schedules_are_matched_action_by_action(
    predicted: Timeline, make_timeline
) -> None:
    # Predicted without messages, and with a STEP that the other one lacks.
    plain = make_timeline(
        ["0F0 0F1 0B0 0B1 0STEP", "1F0 1B0 1F1 1B1"], [0] * 9, range(1, 10), source="plain"
    )
    description, block = encode_timelines((plain, predicted))
    assert len(description["schedules"]) == 2
    one, two = description["timelines"]
    assert column(description, block, one["partner"]) == [0, 2, 5, 7, -1, 9, 11, 13, 14]
    back = column(description, block, two["partner"])
    assert [back[index] for index in (0, 2, 5, 7, 9, 11, 13, 14)] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert back.count(-1) == 8  # the messages


def test_an_empty_step() -> None:
    empty = Timeline("predicted", Schedule("empty", 1, 1, ((), ())), array("q"), array("q"))
    description, block = encode_timelines((empty,))
    assert description["schedules"][0]["first"] == [0, 0, 0]
    assert column(description, block, description["timelines"][0]["start"]) == []
