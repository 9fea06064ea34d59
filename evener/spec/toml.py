"""Read a description from a TOML file; everything wrong with it is reported at once.

Every violation names file, line and key, the value received, what is expected and, for a
misspelt key, the nearest known one. Rules between several keys are checked where each of them is
right by itself.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from evener.errors import SpecError, Violation
from evener.spec.complaints import complaints
from evener.spec.fields import FROM_FILE, Spec
from evener.spec.lines import KeyPath, key_lines

AnySpec = TypeVar("AnySpec", bound=Spec)

_WAY_OUT = "name a text file that describes one"
_SYNTAX_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def load_toml(path: str | Path, spec_type: type[AnySpec]) -> AnySpec:
    """The description in the file at ``path``.

    Raises SpecError with all violations when the file cannot be read, is not TOML or does not
    describe a ``spec_type``.
    """
    return parse_toml(read_text(path, spec_type), spec_type, file=str(path))


def parse_toml(text: str, spec_type: type[AnySpec], *, file: str) -> AnySpec:
    """The description in ``text``; ``file`` is its name in messages. Raises SpecError."""
    try:
        values = tomllib.loads(text)
    except RecursionError:
        found = Violation("not TOML: is nested too deeply", file=file)
        raise SpecError(_header(file, spec_type), [found]) from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(_header(file, spec_type), [_syntax(file, text, str(error))]) from None
    except ValueError:
        found = Violation("not TOML: a number is too long to read", file=file)
        raise SpecError(_header(file, spec_type), [found]) from None
    return build_spec(values, spec_type, file=file, lines=key_lines(text))


def build_spec(
    values: Mapping[str, Any],
    spec_type: type[AnySpec],
    *,
    file: str,
    lines: Mapping[KeyPath, int] | None = None,
) -> AnySpec:
    """The description given by plain values, as a file would have them: quantities with units.

    file: the name of the source in messages. lines: where each key stands, when it has lines.
    Raises SpecError.
    """
    # As JSON, because strict validation then takes a list for a tuple.
    text = json.dumps(values, default=str)
    try:
        return spec_type.model_validate_json(text, context=FROM_FILE, by_alias=True, by_name=False)
    except ValidationError as error:
        found = complaints(error, spec_type, json.loads(text), file=file, lines=lines or {})
        raise SpecError(_header(file, spec_type), found) from None


def read_text(path: str | Path, spec_type: type[Spec]) -> str:
    """The text of a file in UTF-8. Raises SpecError with the reason why it cannot be read."""
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        found = Violation(f"cannot be read: {error.strerror}; {_WAY_OUT}", file=str(path))
    except UnicodeDecodeError as error:
        text = f"is not UTF-8 text: {error.reason} at byte {error.start}; {_WAY_OUT}"
        found = Violation(text, file=str(path))
    raise SpecError(_header(str(path), spec_type), [found])


def _header(file: str, spec_type: type[Spec]) -> str:
    return f"{file} does not describe a {spec_type.__name__}:"


def _syntax(file: str, text: str, message: str) -> Violation:
    what, line, column = message, text.count("\n") + 1, "the end"
    place = _SYNTAX_PLACE.search(message)
    if place is not None:
        what = message[: place.start()]
        if place[1] is not None:
            line, column = int(place[1]), f"column {place[2]}"
    return Violation(f"not TOML at {column}: {what[0].lower()}{what[1:]}", file=file, line=line)
