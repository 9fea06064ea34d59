"""What stages hand to one another: nested tensors, and how they travel as a flat tuple.

A value is a tensor, None, or a tuple, list or dict (with text keys) of values.
"""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from evener.errors import UsageError

Value: TypeAlias = Any
"""Tensor | None | tuple | list | dict of values."""

Microbatch: TypeAlias = dict[str, Any]
"""The part of a batch that goes through the model at once: named tensors and other values."""

Skeleton: TypeAlias = Any
"""The value with "" for every tensor and JSON arrays that begin with the container's name."""

_LONE_TENSOR: Skeleton = ""


def flatten(value: Value) -> tuple[Skeleton, list[Tensor]]:
    """The shape of the nest and its tensors in order. UsageError for anything else inside."""
    tensors: list[Tensor] = []
    return _flatten(value, tensors), tensors


def _flatten(value: Value, tensors: list[Tensor]) -> Skeleton:
    if isinstance(value, Tensor):
        tensors.append(value)
        return _LONE_TENSOR
    if value is None:
        return None
    if isinstance(value, tuple | list):
        name = "tuple" if isinstance(value, tuple) else "list"
        return [name, *(_flatten(each, tensors) for each in value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return ["dict", *([key, _flatten(each, tensors)] for key, each in value.items())]
    raise UsageError("a stage returned what cannot be sent", [_not_sendable(value)])


def unflatten(skeleton: Skeleton, tensors: Iterator[Tensor]) -> Value:
    """The nest that ``flatten`` took apart."""
    if skeleton == _LONE_TENSOR:
        return next(tensors)
    if skeleton is None:
        return None
    name, *parts = skeleton
    if name == "dict":
        return {key: unflatten(part, tensors) for key, part in parts}
    values = (unflatten(part, tensors) for part in parts)
    return tuple(values) if name == "tuple" else list(values)


def to_message(skeleton: Skeleton, tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """A lone tensor as it is; of anything else, the skeleton travels in front as bytes."""
    if skeleton == _LONE_TENSOR:
        return (tensors[0],)
    text = bytearray(json.dumps(skeleton, separators=(",", ":")).encode())
    device = tensors[0].device if tensors else torch.device("cpu")
    return (torch.frombuffer(text, dtype=torch.uint8).to(device), _PLACEHOLDER.to(device), *tensors)


# So that a nest without tensors is not taken for a lone tensor.
_PLACEHOLDER = torch.empty(0, dtype=torch.uint8)


def from_message(message: tuple[Tensor, ...]) -> tuple[Skeleton, list[Tensor]]:
    """The skeleton and the tensors that ``to_message`` packed."""
    if len(message) == 1:
        return _LONE_TENSOR, [message[0]]
    text, _, *tensors = message
    return json.loads(bytes(text.tolist())), tensors


def is_differentiable(tensor: Tensor) -> bool:
    """Whether a tensor of this type can carry a gradient."""
    return tensor.is_floating_point() or tensor.is_complex()


def _not_sendable(value: object) -> str:
    return (
        f"got {type(value).__name__}; stages exchange tensors, None, and tuples, lists and dicts "
        "with text keys of these: make a tensor of it, or give it to every stage in the batch"
    )
