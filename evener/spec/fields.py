"""What all descriptions share: frozen, strict, no unknown keys, quantities with units.

A field that holds a quantity carries its unit in its Python name (``memory_bytes``) and is an
integer there. In a file the key has no suffix and the value has the unit (``memory = "80 GiB"``).
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from evener import units

# Passed as validation context when a person's file is read: there a number must carry a unit.
FROM_FILE = "from file"

_UNIT_SUFFIX = re.compile("_(bytes|bytes_per_s|flops_per_s|ns|micro_usd_per_h)$")


def file_key(field_name: str) -> str:
    """The key in a file for a field: its name without the suffix that gives the unit."""
    return _UNIT_SUFFIX.sub("", field_name)


class Spec(BaseModel):
    """Base of every description. Python code uses the names of the fields, files the keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        alias_generator=AliasGenerator(validation_alias=file_key),
        validate_by_name=True,
        validate_by_alias=True,
    )


# The path below the key that is being validated, and what is wrong there.
Problem = tuple[tuple[str | int, ...], str]


class Problems(ValueError):
    """Several things wrong below one key, for validators that see more than one."""

    def __init__(self, found: list[Problem]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(text for _, text in found))


def _with_unit(parse: Callable[[object], int]) -> BeforeValidator:
    def read(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) or info.context == FROM_FILE:
            return parse(value)
        return value

    return BeforeValidator(read)


Count = Annotated[int, Field(gt=0, lt=2**63)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$")]
LayerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-]*$")]
Bytes = Annotated[int, Field(gt=0), _with_unit(units.parse_bytes)]
BytesPerS = Annotated[int, Field(gt=0), _with_unit(units.parse_bytes_per_s)]
Ns = Annotated[int, Field(ge=0), _with_unit(units.parse_ns)]
FlopsPerS = Annotated[int, Field(gt=0), _with_unit(units.parse_flops_per_s)]
MicroUsdPerH = Annotated[int, Field(ge=0), _with_unit(units.parse_micro_usd_per_h)]

Dtype = Literal["float64", "float32", "bfloat16", "float16", "float8"]
DTYPE_BYTES: dict[Dtype, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
}
