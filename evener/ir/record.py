"""What our JSON files share: frozen, strict, no unknown keys, schedules as lines of text."""

from typing import Annotated, Any

from pydantic import AliasGenerator, BaseModel, ConfigDict, PlainSerializer, PlainValidator

from evener.errors import ScheduleError
from evener.ir.freezing import Freezing
from evener.ir.schedule import Schedule
from evener.ir.text import format_schedule, parse_schedule
from evener.spec.fields import Problems


class Record(BaseModel):
    """Base of what is kept as JSON; keys are the names of the fields, units included."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        # Messages list the known keys by their aliases.
        alias_generator=AliasGenerator(validation_alias=str),
    )


def _read_schedule(value: Any) -> Schedule:
    """A schedule as it is, or from the lines of its text."""
    if isinstance(value, Schedule):
        return value
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ValueError("should be a list of lines, the text of a schedule")
    try:
        return parse_schedule("\n".join(value))
    except ScheduleError as error:
        raise Problems([((), text) for text in error.violations]) from None


ScheduleLines = Annotated[
    Schedule,
    PlainValidator(_read_schedule),
    PlainSerializer(lambda schedule: format_schedule(schedule).splitlines(), when_used="json"),
]


def _read_freezing(value: Any) -> Freezing:
    """A freezing as it is, or from its lines."""
    if isinstance(value, Freezing):
        return value
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ValueError("should be a list of lines, one per stage")
    return Freezing.parse(value)


FreezingLines = Annotated[
    Freezing,
    PlainValidator(_read_freezing),
    PlainSerializer(lambda freezing: freezing.lines(), when_used="json"),
]
