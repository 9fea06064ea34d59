"""What a layer that mixes tokens is given when a microbatch is computed slice by slice.

A layer whose ``forward`` names a parameter ``slice_context`` (default None) takes part: for a slice
it is given a ``SliceContext``, otherwise nothing.  ``extended`` puts the keys and values of earlier
slices in front of its own.  They stand in one memory for the whole sequence, so no slice copies
those of another.  Slices go backward last first: what a later slice finds for the keys of an
earlier one is collected beside that memory, and is where the earlier slice's backward starts, next
to its outputs.

Sources: TeraPipe (arXiv 2102.07988, section 3.2), Seq1F1B (arXiv 2406.03488, section 3.2).
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from evener.modules.memory_owner import alias, enter

TOKENS = 1
"""The dimension of the tokens in batches and in what layers exchange; samples are along 0."""


class _Slot:
    """What one call of ``extended`` hands on, for all tokens of a sequence.

    whole: the tensors of all slices, one after another along ``dim``; filled up to ``end``.
    gradient: for the tokens of all slices but the last, from slices that have gone backward.
    """

    __slots__ = ("dim", "end", "gradient", "whole")

    def __init__(self, first: Tensor, dim: int, sequence_length: int) -> None:
        shape = list(first.shape)
        shape[dim] = sequence_length
        self.dim = dim
        self.whole = first.new_empty(shape)
        self.end = 0
        self.gradient: Tensor | None = None

    def write(self, own: Tensor, offset: int) -> None:
        """Take over the tensor of a slice; a recomputed one is there already."""
        if self.end == offset:
            self.end += own.shape[self.dim]
            with torch.no_grad():
                self.whole.narrow(self.dim, offset, own.shape[self.dim]).copy_(own)

    def until(self, end: int) -> Tensor:
        """The tokens before ``end``: not a view for autograd, which later slices would spoil."""
        return alias(self.whole.narrow(self.dim, 0, end))

    def add_gradient(self, gradient: Tensor) -> None:
        """Add what a slice found for the tokens before its own."""
        if self.gradient is None:
            self.gradient = gradient.clone()
        else:
            self.gradient.narrow(self.dim, 0, gradient.shape[self.dim]).add_(gradient)

    def gradient_of(self, offset: int, num_tokens: int) -> Tensor:
        """What later slices found for the slice at ``offset``."""
        if self.gradient is None:
            return torch.zeros_like(self.whole.narrow(self.dim, offset, num_tokens))
        return self.gradient.narrow(self.dim, offset, num_tokens)


class _Extended(torch.autograd.Function):
    """A slice's tensor behind those of earlier slices, whose gradients are put by."""

    @staticmethod
    def forward(ctx, own, slot, offset):
        ctx.slot, ctx.offset, ctx.num_tokens = slot, offset, own.shape[slot.dim]
        return slot.until(offset + ctx.num_tokens)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        dim, offset = ctx.slot.dim, ctx.offset
        if offset > 0:
            ctx.slot.add_gradient(gradient.narrow(dim, 0, offset))
        return gradient.narrow(dim, offset, ctx.num_tokens), None, None


class Past:
    """What the slices of one microbatch hand on within one stage, call by call of ``extended``."""

    def __init__(self, sequence_length: int) -> None:
        self.sequence_length = sequence_length
        self.slots: list[_Slot] = []


class SliceContext:
    """One slice in one stage.

    offset: how many tokens of the sequence stand before the slice. num_tokens: its own.
    sequence_length: of the whole.
    """

    def __init__(self, past: Past, offset: int, num_tokens: int) -> None:
        self.offset = offset
        self.num_tokens = num_tokens
        self.sequence_length = past.sequence_length
        self._slots = past.slots
        self._num_calls = 0
        self._is_open = True
        self._given: list[tuple[Tensor, int]] = []
        # What later slices may find gradients for.
        self._own: list[Tensor] = []
        self._slots_of_own: list[_Slot] = []

    def extended(self, *tensors: Tensor, dim: int) -> tuple[Tensor, ...]:
        """The same tensors of all earlier slices and this one, along their token dimension.

        dim: where the tokens are, the same in all of ``tensors``; each has ``num_tokens`` there.

        A layer calls it for the same things in the same order in every slice, whatever the data,
        and does not change the results in place: earlier and later slices read the same memory.
        Raises RuntimeError where that is not so.
        """
        return tuple(self._extended(tensor, dim) for tensor in tensors)

    def _extended(self, own: Tensor, dim: int) -> Tensor:
        if not self._is_open:
            raise RuntimeError(_CLOSED)
        if own.shape[dim] != self.num_tokens:
            raise RuntimeError(_other_length(own, dim, self.num_tokens))
        if self._num_calls == len(self._slots) and self.offset == 0:
            self._slots.append(_Slot(own, dim, self.sequence_length))
        if self._num_calls == len(self._slots):
            raise RuntimeError(_OTHER_CALLS)
        slot = self._slots[self._num_calls]
        self._num_calls += 1
        slot.write(own, self.offset)
        if own.requires_grad and torch.is_grad_enabled():
            # Not itself: where its backward leads changes with it, if a layer changes it in place.
            self._own.append(enter(own))
            self._slots_of_own.append(slot)
            given: Tensor = _Extended.apply(own, slot, self.offset)
        else:
            given = slot.until(self.offset + self.num_tokens)
        self._given.append((given, given._version))
        return given

    def close(self) -> list[Tensor]:
        """End the forward. Returns the tensors where the backward starts besides the outputs.

        Raises RuntimeError if ``extended`` was called less often than in the first slice, or its
        results were changed in place.
        """
        if self._num_calls != len(self._slots):
            raise RuntimeError(_OTHER_CALLS)
        if any(given._version != version for given, version in self._given):
            raise RuntimeError(_CHANGED)
        own, self._own, self._given, self._is_open = self._own, [], [], False
        return own

    def gradients(self) -> list[Tensor]:
        """What later slices, all gone backward, found for the tensors that ``close`` returned."""
        return [slot.gradient_of(self.offset, self.num_tokens) for slot in self._slots_of_own]


_OTHER_CALLS = (
    "a layer calls slice_context.extended for one slice more or less often than for another; call "
    "it for the same things in every slice"
)
_CHANGED = (
    "a layer changes in place what slice_context.extended gave it, but other slices read the same "
    "memory; change a copy"
)
_CLOSED = (
    "slice_context.extended is called after the layer's forward, as a checkpoint inside a layer "
    "does; leave recomputing to the plan"
)


def _other_length(own: Tensor, dim: int, num_tokens: int) -> str:
    return (
        f"slice_context.extended got a tensor of shape {list(own.shape)}, but the slice has "
        f"{num_tokens} tokens, which dimension {dim} is not; name the dimension of the tokens"
    )
