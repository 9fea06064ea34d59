"""The data of one step, cut into microbatches. Every rank is given all of it."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from evener.errors import UsageError
from evener.modules.values import Microbatch

Batch: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Named tensors with the samples along dimension 0, or a list with one mapping per microbatch."""


def cut(batch: Batch, num_microbatches: int) -> list[Microbatch]:
    """Cut ``batch`` into microbatches, consecutive samples each.

    Where the samples do not divide, the first microbatches get one more.  Tensors without
    dimensions, tensors with one row (masks for all samples) and other values go to every
    microbatch whole.  A list is taken as it is: its microbatches may differ in size and length.

    Raises UsageError, the same on every rank, if there are fewer samples than microbatches, none
    at all, or tensors of different numbers of samples.
    """
    if not isinstance(batch, Mapping):
        if len(batch) != num_microbatches:
            raise UsageError(_CANNOT_CUT, [_wrong_count(len(batch), num_microbatches)])
        return [dict(microbatch) for microbatch in batch]
    number = num_samples(batch)
    if number < num_microbatches:
        raise UsageError(_CANNOT_CUT, [_too_few(number, num_microbatches)])
    parts = {name: _parts(value, number, num_microbatches) for name, value in batch.items()}
    return [
        {name: part[index] for name, part in parts.items()} for index in range(num_microbatches)
    ]


def num_samples(batch: Batch) -> int:
    """How many samples there are to cut; of a list, how many microbatches it has.

    Raises UsageError if there are none.
    """
    number = _num_samples(batch) if isinstance(batch, Mapping) else len(batch)
    if not number:
        raise UsageError(_CANNOT_CUT, [_NO_SAMPLES])
    return number


def signature(microbatch: Microbatch) -> Hashable:
    """What the shapes of all that the microbatch becomes follow from."""
    return tuple(
        (name, value.dtype, value.shape)
        for name, value in microbatch.items()
        if isinstance(value, Tensor)
    )


def to_device(microbatch: Microbatch, device: torch.device) -> Microbatch:
    """The same with its tensors on ``device``."""
    return {
        name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        for name, value in microbatch.items()
    }


def _num_samples(batch: Mapping[str, Any]) -> int:
    sizes = {
        name: value.shape[0]
        for name, value in batch.items()
        if isinstance(value, Tensor) and value.dim() > 0
    }
    distinct = set(sizes.values()) - {1}
    if len(distinct) > 1:
        raise UsageError(_CANNOT_CUT, [_different_sizes(sizes)])
    if not sizes:
        raise UsageError(_CANNOT_CUT, ["it has no tensor with samples along dimension 0"])
    return distinct.pop() if distinct else 1


def _parts(value: Any, num_samples: int, num_microbatches: int) -> Sequence[Any]:
    if isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == num_samples:
        return value.tensor_split(num_microbatches)
    return [value] * num_microbatches


_CANNOT_CUT = "the batch cannot be cut into microbatches"
_NO_SAMPLES = "it has no samples; give at least one for each microbatch"


def _wrong_count(given: int, needed: int) -> str:
    return f"it is a list of {given} microbatches, but the plan has {needed}; give {needed}"


def _too_few(num_samples: int, num_microbatches: int) -> str:
    return (
        f"it has {num_samples} samples for {num_microbatches} microbatches; give at least one "
        "sample for each, or plan with fewer microbatches"
    )


def _different_sizes(sizes: dict[str, int]) -> str:
    listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
    return f"its tensors have different numbers of samples (dimension 0): {listed}"
