"""Who owns the memory of a tensor: gradients that share it, and aliases that autograd accepts."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def without_gradient(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those whose gradient the next backward would create."""
    return [parameter for parameter in parameters if parameter.grad is None]


def make_private(parameters: Sequence[nn.Parameter], others: Iterable[Tensor | None]) -> None:
    """Copy gradients that share memory with ``others`` or with one another.

    parameters: had no gradient before the backward that has just run. others: what that backward
        was given, returned or kept.

    Autograd takes over a new gradient as it is, views included, and later adds to it in place: that
    would change what is still being sent, or waits for W.
    """
    created = [parameter for parameter in parameters if parameter.grad is not None]
    if not created:
        return
    taken = {memory_of(tensor) for tensor in others if tensor is not None} - {None}
    for parameter in created:
        gradient = parameter.grad
        assert gradient is not None, "only created gradients are looked at"
        memory = memory_of(gradient)
        if memory in taken:
            parameter.grad = gradient.clone()
        elif memory is not None:
            taken.add(memory)


def memory_of(tensor: Tensor) -> int | None:
    """Where a tensor's storage begins; None if it has no single one (sparse), or an empty one."""
    if tensor.layout is not torch.strided:
        return None
    return tensor.untyped_storage().data_ptr() or None


def alias(tensor: Tensor) -> Tensor:
    """Another tensor with the same memory that autograd does not take for a view of it.

    It counts its changes in place by itself: use it only if nobody reads the original any more.
    """
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )


class _Entry(torch.autograd.Function):
    """The identity; its output is not a leaf, so that layers may change it in place."""

    @staticmethod
    def forward(ctx, leaf):
        return alias(leaf)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient


def enter(leaf: Tensor) -> Tensor:
    """What layers are given for a leaf that requires a gradient: they may change it in place."""
    entered: Tensor = _Entry.apply(leaf)
    return entered
