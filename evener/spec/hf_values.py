"""The values of a Hugging Face configuration, read one by one, complaints collected."""

import json
from collections.abc import Mapping
from typing import Any

from evener.errors import Violation
from evener.spec.complaints import closest
from evener.spec.layers import Activation

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
_MOST_LAYERS = 100_000


class HfValues:
    """Reads values by key. What is missing or wrong is remembered and replaced by a valid value.

    A key whose value is ``null`` counts as not given.
    """

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self.values = values
        self.file = file
        self.violations: list[Violation] = []

    def complain(self, key: str, text: str) -> None:
        violation = Violation(text, file=self.file, key=key)
        if violation not in self.violations:
            self.violations.append(violation)

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number not below ``least``."""
        value = self.values[key] if self.has(key) else default
        if value is None:
            self.complain(key, "is missing")
        elif isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.complain(key, f"{json.dumps(value)} should be a whole number, at least {least}")
        else:
            return value
        return 1

    def optional_count(self, key: str) -> int | None:
        return self.count(key) if self.has(key) else None

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values[key] if self.has(key) else default
        if not isinstance(value, bool):
            self.complain(key, f"{json.dumps(value)} should be true or false")
        return bool(value)

    def fraction(self, key: str) -> float:
        """A number from 0 to below 1; 0 where not given."""
        value = self.values[key] if self.has(key) else 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.complain(key, f"{json.dumps(value)} should be a number from 0 to below 1")
            return 0.0
        return float(value)

    def names(self, key: str) -> list[str] | None:
        """Layer types: a list of names, or a text with one letter for each; None if not given."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list | str):
            self.complain(key, f"{json.dumps(value)} should be a list of layer types")
            return []
        return None if value is None else [str(name) for name in value]

    def positions(self, key: str) -> list[int]:
        """Positions of layers; none where not given."""
        value = self.values[key] if self.has(key) else []
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            self.complain(key, f"{json.dumps(value)} should be a list of layer positions")
            return []
        return value

    def activation(self, *keys: str) -> Activation:
        """The activation under the first of ``keys`` that is given; silu where none is."""
        key = next((key for key in keys if self.has(key)), keys[0])
        name = str(self.values[key]) if self.has(key) else "silu"
        if name not in _ACTIVATIONS:
            self.complain(key, f'unknown activation "{name}"{closest(name, _ACTIVATIONS)}')
        return _ACTIVATIONS.get(name, "silu")

    @property
    def num_layers(self) -> int:
        number = self.count("num_hidden_layers")
        if number > _MOST_LAYERS:
            self.complain("num_hidden_layers", f"{number} should be at most {_MOST_LAYERS}")
        return min(number, _MOST_LAYERS)
