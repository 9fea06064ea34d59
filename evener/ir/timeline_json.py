"""Timelines as JSON: the schedule as lines of text, the times as lists in flat order."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from evener.errors import EvenerError
from evener.ir.record import Record, ScheduleLines
from evener.ir.timeline import Timeline
from evener.ir.versioned_json import JsonFile
from evener.spec.complaints import complaints
from evener.spec.fields import Problem, Problems

_FILE = JsonFile(
    "timeline",
    version=1,
    error_type=EvenerError,
    way_out="`evener simulate` and `evener train` write timelines",
)
_Value = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _TimelineRecord(Record):
    """The fields of a Timeline as JSON has them."""

    version: Literal[1] = 1
    source: str
    schedule: ScheduleLines
    start_ns: tuple[_Value, ...]
    end_ns: tuple[_Value, ...]
    memory_bytes: tuple[_Value, ...]
    peak_bytes: tuple[_Value, ...]

    @model_validator(mode="after")
    def _one_value_per_action(self) -> Self:
        num_actions, num_workers = self.schedule.num_actions, self.schedule.num_workers
        found: list[Problem] = [
            ((key,), f"has {len(values)} values for {number} {what}")
            for key, values, number, what, may_be_empty in (
                ("start_ns", self.start_ns, num_actions, "actions", False),
                ("end_ns", self.end_ns, num_actions, "actions", False),
                ("memory_bytes", self.memory_bytes, num_actions, "actions", True),
                ("peak_bytes", self.peak_bytes, num_workers, "workers", True),
            )
            if len(values) != number and not (may_be_empty and not values)
        ]
        found += self._negative_times()
        if found:
            raise Problems(found)
        return self

    def _negative_times(self) -> Iterator[Problem]:
        for place, (start_ns, end_ns) in enumerate(zip(self.start_ns, self.end_ns, strict=False)):
            if end_ns < start_ns:
                yield ("end_ns", place), f"{end_ns} is before the start, {start_ns}"
                return  # one is enough: clocks that differ put all of them wrong


def timeline_to_json(timeline: Timeline) -> str:
    """The text of a JSON object that ``timeline_from_json`` reads back."""
    record = _TimelineRecord(
        source=timeline.source,
        schedule=timeline.schedule,
        start_ns=tuple(timeline.start_ns),
        end_ns=tuple(timeline.end_ns),
        memory_bytes=tuple(timeline.memory_bytes),
        peak_bytes=timeline.peak_bytes,
    )
    return record.model_dump_json()


def load_timeline(path: Path | str) -> Timeline:
    """Read a timeline file. Raises EvenerError with all that is wrong with it."""
    return timeline_from_json(_FILE.read(path), file=path)


def timeline_from_json(text: str, *, file: Path | str = "timeline") -> Timeline:
    """Read a timeline; ``file`` is its name in messages. Raises EvenerError with all violations."""
    values = _FILE.parse(text, file)
    try:
        record = _TimelineRecord.model_validate_json(text)
    except ValidationError as error:
        found = complaints(error, _TimelineRecord, values, file=str(file), lines={})
        raise EvenerError(_FILE.header(file), [str(violation) for violation in found]) from None
    return Timeline(
        source=record.source,
        schedule=record.schedule,
        start_ns=array("q", record.start_ns),
        end_ns=array("q", record.end_ns),
        memory_bytes=array("q", record.memory_bytes),
        peak_bytes=record.peak_bytes,
    )
