"""Collectives on gradients: their sum over replicas, and the norm of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from evener.executor.transport import Done, Handle, Transport

# What torch.nn.utils.clip_grad_norm_ adds to the norm before it divides.
_CLIP_EPSILON = 1e-6


@dataclass
class _Bucket:
    """The gradients of parameters of one type, in one row, then one flag each.

    A flag says how many members have the gradient at all: a parameter that none of them used must
    keep None, or the optimizer would decay it.
    """

    parameters: list[nn.Parameter]
    row: Tensor

    @classmethod
    def of(cls, parameters: list[nn.Parameter]) -> "_Bucket":
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flags = parameters[0].new_tensor([p.grad is not None for p in parameters])
        return cls(parameters, torch.cat([*(piece.flatten() for piece in pieces), flags]))

    def give_back(self) -> None:
        sizes = [parameter.numel() for parameter in self.parameters]
        *pieces, flags = self.row.split([*sizes, len(sizes)])
        for parameter, piece, count in zip(self.parameters, pieces, flags.tolist(), strict=True):
            parameter.grad = piece.view_as(parameter) if count else None


@dataclass
class _Sum:
    buckets: list[_Bucket]
    handles: list[Handle]

    def wait(self) -> tuple[Tensor, ...]:
        for bucket, handle in zip(self.buckets, self.handles, strict=True):
            handle.wait()
            bucket.give_back()
        return ()


def start_sum(
    parameters: Sequence[nn.Parameter], transport: Transport, members: tuple[int, ...]
) -> Handle:
    """Start to sum the gradients over ``members``; ``wait`` puts the sums into ``.grad``."""
    of_type: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        of_type.setdefault(parameter.dtype, []).append(parameter)
    buckets = [_Bucket.of(group) for group in of_type.values()]
    return _Sum(buckets, [transport.all_reduce(members, bucket.row) for bucket in buckets])


class GlobalNorm:
    """The Euclidean norm of all gradients of the model, every parameter counted once.

    owner: per parameter of the model the worker that counts it; the order is the order of the sum,
        so all workers get bitwise the same number however the model is split.
    """

    def __init__(self, owner: Mapping[str, int], worker: int) -> None:
        self._mine = {
            name: index for index, (name, who) in enumerate(owner.items()) if who == worker
        }
        self._count = len(owner)

    def start(
        self,
        parameters: Mapping[str, nn.Parameter],
        transport: Transport,
        members: tuple[int, ...],
        device: torch.device,
    ) -> "NormInFlight":
        """Start the exchange; call ``norm`` of what is returned once."""
        indices, squares = [], []
        for name, index in self._mine.items():
            gradient = parameters[name].grad
            if gradient is not None:
                indices.append(index)
                norm = torch.linalg.vector_norm(gradient, dtype=torch.float64)
                squares.append(norm.square())
        row = torch.zeros(self._count, dtype=torch.float64, device=device)
        if squares:
            row[torch.tensor(indices, device=device)] = torch.stack(squares)
        handle = transport.all_reduce(members, row) if len(members) > 1 else Done()
        return NormInFlight(row, handle)


@dataclass
class NormInFlight:
    """An exchange of squared norms that has begun."""

    row: Tensor
    handle: Handle

    def norm(self) -> float:
        self.handle.wait()
        return sqrt(sum(self.row.tolist()))


@torch.no_grad()
def clip(parameters: Mapping[str, nn.Parameter], norm: float, max_norm: float) -> None:
    """Scale the gradients as ``torch.nn.utils.clip_grad_norm_`` does for this global norm."""
    # Not min(): a norm that is not a number must reach the gradients.
    coefficient = max_norm / (norm + _CLIP_EPSILON)
    if not coefficient >= 1.0:
        for parameter in parameters.values():
            if parameter.grad is not None:
                parameter.grad.mul_(coefficient)
