"""What pydantic found wrong, told with the place in the file and the way out."""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from evener.errors import Violation
from evener.spec.fields import Problems
from evener.spec.lines import KeyPath

# A default that is computed from another field; that field's own error says all there is to say.
_ECHOES = {"default_factory_not_called"}

_WISHES = {
    "int_type": "be a whole number",
    "float_type": "be a number",
    "string_type": "be a text in quotes",
    "bool_type": "be true or false",
    "tuple_type": "be a list",
    "dict_type": "be a table",
    "model_type": "be a table",
    "model_attributes_type": "be a table",
}


def complaints(
    error: ValidationError,
    spec_type: type[BaseModel],
    values: Mapping[str, Any],
    *,
    file: str,
    lines: Mapping[KeyPath, int],
) -> list[Violation]:
    """All violations in ``error``, in the order of the file.

    values: what was validated, as read from the file. lines: where each key stands.
    """
    found: list[Violation] = []
    listed = set()
    for detail in error.errors(include_url=False):
        if detail["type"] in _ECHOES:
            continue
        path = _path_in_file(detail, values)
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Problems):
            texts = [((*path, *below), text) for below, text in cause.found]
        else:
            text = _text(detail, spec_type)
            if detail["type"] == "extra_forbidden" and text in listed:
                text = "unknown key"  # one list of what is known is enough
            listed.add(text)
            texts = [(path, text)]
        found += [
            Violation(text=text, file=file, line=_line(lines, at), key=shown_path(at) or None)
            for at, text in texts
        ]
    return sorted(found, key=lambda violation: violation.line or 0)


def closest(word: object, known: Iterable[str]) -> str:
    """``; did you mean "..."?`` when a known word is near, else the list of what is known."""
    words = list(known)
    near = get_close_matches(str(word).lower(), [word.lower() for word in words], n=1)
    if near:
        return "; did you mean " + next(f'"{word}"?' for word in words if word.lower() == near[0])
    return f"; known: {', '.join(words)}" if words else ""


def shown_path(path: KeyPath) -> str:
    """A path as a person writes it: ``nodes[1].link.latency``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _path_in_file(detail: ErrorDetails, values: Any) -> KeyPath:
    """The error's location without pydantic's own parts, such as the tags of unions."""
    path: KeyPath = ()
    for part in detail["loc"]:
        inside = (isinstance(values, dict) and part in values) or (
            isinstance(values, list) and isinstance(part, int) and part < len(values)
        )
        if inside:
            values = values[part]
            path += (part,)
    last = {"missing": detail["loc"][-1:], "union_tag_invalid": ("kind",)}
    return path + last.get(detail["type"], ())


def _line(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _text(detail: ErrorDetails, spec_type: type[BaseModel]) -> str:
    context = detail.get("ctx", {})
    received = detail["input"]
    match detail["type"]:
        case "missing":
            return "is missing and has no default"
        case "extra_forbidden":
            known = _known_keys(spec_type, detail["loc"][:-1])
            return f"unknown key{closest(detail['loc'][-1], known)}"
        case "union_tag_invalid":
            tags = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
            return f'unknown kind "{context["tag"]}"{closest(context["tag"], tags)}'
        case "union_tag_not_found":
            return "has no kind; add kind = one of: " + ", ".join(_tags(spec_type, detail["loc"]))
        case "literal_error":
            allowed = context["expected"].replace("'", '"').replace(" or ", ", ").split(", ")
            hint = closest(received, [word.strip('"') for word in allowed])
            return f"{_shown(received)} is not one of {', '.join(allowed)}{_only_guess(hint)}"
        case "value_error":
            return str(context["error"])
        case "json_invalid":
            return "is nested too deeply"
        case "string_pattern_mismatch":
            return f"{_shown(received)} should be a name of letters, digits, '_' and '-'"
        case _:
            wish = _WISHES.get(detail["type"]) or detail["msg"].removeprefix("Input should").strip()
            return f"{_shown(received)} should {wish}"


def _only_guess(hint: str) -> str:
    return hint if hint.startswith("; did") else ""


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _alternatives(annotation: Any) -> list[Any]:
    """The types that a value may have, unions and annotations taken apart."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [inner for arg in get_args(annotation) for inner in _alternatives(arg)]
    return [annotation]


def _descend(types: list[Any], part: str | int) -> list[Any]:
    """The types below ``part`` of a location: a key, a position or the tag of a union."""
    below: list[Any] = []
    for kind in types:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if part in _tag_values(kind):
                below.append(kind)
            for field in kind.model_fields.values():
                if field.validation_alias == part:
                    below += _alternatives(field.annotation)
        elif get_origin(kind) in (tuple, dict):
            below += _alternatives(get_args(kind)[-1 if get_origin(kind) is dict else 0])
    return below


def _at(spec_type: type[BaseModel], location: KeyPath) -> list[type[BaseModel]]:
    types: list[Any] = [spec_type]
    for part in location:
        types = _descend(types, part)
    return [kind for kind in types if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _known_keys(spec_type: type[BaseModel], location: KeyPath) -> list[str]:
    return [
        str(field.validation_alias)
        for kind in _at(spec_type, location)
        for field in kind.model_fields.values()
    ]


def _tag_values(kind: type[BaseModel]) -> tuple[str, ...]:
    field = kind.model_fields.get("kind")
    is_tag = field is not None and get_origin(field.annotation) is Literal
    return get_args(field.annotation) if field is not None and is_tag else ()


def _tags(spec_type: type[BaseModel], location: KeyPath) -> list[str]:
    return [tag for kind in _at(spec_type, location) for tag in _tag_values(kind)]
