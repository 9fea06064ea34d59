"""The numbers of a report as one compressed block that a browser reads without parsing text.

The block is a deflated concatenation of columns, each of one type of number, little-endian and
aligned to 8 bytes; `columns` in the accompanying description says where each one lies. Everything
about one action has the same position (its flat index) in all columns.
"""

import sys
import zlib
from array import array
from base64 import b64encode
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from evener.ir.action import Kind
from evener.ir.rules import RULES
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.report.waits import NOTHING, waited_for

_KIND_INDEX = {kind: index for index, kind in enumerate(Kind)}
_TYPES = {"B": "u8", "i": "i32", "d": "f64"}


class Columns:
    """Columns of numbers on their way into one block."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._described: list[list[Any]] = []

    def add(self, type_code: str, values: Iterable[int | float]) -> int:
        """Append a column of ``array`` type B, i or d; returns its number."""
        column = array(type_code, values)
        if sys.byteorder == "big":
            column.byteswap()
        self._described.append([_TYPES[type_code], self._size, len(column)])
        data = column.tobytes()
        data += bytes(-len(data) % 8)
        self._parts.append(data)
        self._size += len(data)
        return len(self._described) - 1

    def description(self) -> list[list[Any]]:
        """Per column its type, offset in bytes and number of values."""
        return self._described

    def block(self) -> str:
        """All columns, deflated, in base64."""
        return b64encode(zlib.compress(b"".join(self._parts), level=6)).decode("ascii")


def encode_timelines(timelines: tuple[Timeline, ...]) -> tuple[dict[str, Any], str]:
    """The description (to be written as JSON) and the block of one or two timelines."""
    columns = Columns()
    schedules = [timelines[0].schedule]
    if timelines[-1].schedule != schedules[0]:
        schedules.append(timelines[-1].schedule)
    description: dict[str, Any] = {
        "kinds": [[str(kind), RULES[kind].stream.value] for kind in Kind],
        "schedules": [_encode_schedule(schedule, columns) for schedule in schedules],
        "timelines": [
            _encode_timeline(timeline, columns) | {"schedule": min(index, len(schedules) - 1)}
            for index, timeline in enumerate(timelines)
        ],
        "columns": columns.description(),
    }
    if len(schedules) == 2:
        there, back = _partners(schedules[0], schedules[1])
        description["timelines"][0]["partner"] = columns.add("i", there)
        description["timelines"][1]["partner"] = columns.add("i", back)
    return description, columns.block()


def _encode_schedule(schedule: Schedule, columns: Columns) -> dict[str, Any]:
    actions = [action for _, action in schedule.actions()]
    encoded: dict[str, Any] = {
        "name": schedule.name,
        "first": list(accumulate(map(len, schedule.workers), initial=0)),
        "stages": [list(stages) for stages in schedule.stages_of_worker],
        "kind": columns.add("B", (_KIND_INDEX[action.kind] for action in actions)),
        "stage": columns.add("i", (action.stage for action in actions)),
        "microbatch": columns.add("i", map(_or_none, (a.microbatch for a in actions))),
    }
    if any(action.slice is not None for action in actions):
        encoded["slice"] = columns.add("i", map(_or_none, (a.slice for a in actions)))
    if any(action.peer is not None for action in actions):
        encoded["peer"] = columns.add("i", map(_or_none, (a.peer for a in actions)))
    names = {action.name: None for action in actions if action.name is not None}
    if names:
        number = {name: index for index, name in enumerate(names)}
        encoded["names"] = list(names)
        encoded["name_of"] = columns.add(
            "i", (NOTHING if a.name is None else number[a.name] for a in actions)
        )
    return encoded


def _encode_timeline(timeline: Timeline, columns: Columns) -> dict[str, Any]:
    origin_ns = min(timeline.start_ns, default=0)
    pairs = zip(timeline.start_ns, timeline.end_ns, strict=True)
    encoded: dict[str, Any] = {
        "source": timeline.source,
        "step_ns": timeline.step_ns,
        "start": columns.add("d", (start - origin_ns for start in timeline.start_ns)),
        "duration": columns.add("d", (end - start for start, end in pairs)),
        "waited": columns.add("i", waited_for(timeline)),
        "peak_bytes": list(timeline.peak_bytes),
    }
    if any(timeline.memory_bytes):
        encoded["memory"] = columns.add("d", timeline.memory_bytes)
    return encoded


def _partners(one: Schedule, other: Schedule) -> tuple[list[int], list[int]]:
    """Per action of each schedule, the flat index of the same action in the other, or NOTHING."""
    index_in_one = {key: index for index, key in enumerate(one.actions())}
    index_in_other = {key: index for index, key in enumerate(other.actions())}
    return (
        [index_in_other.get(key, NOTHING) for key in one.actions()],
        [index_in_one.get(key, NOTHING) for key in other.actions()],
    )


def _or_none(value: int | None) -> int:
    return NOTHING if value is None else value
