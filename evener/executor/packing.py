"""A message is a tuple of tensors; what travels is bytes. Both sides derive the same buffers."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from evener.errors import UsageError

# Tensors that follow one another are copied into one buffer up to this size; above, copying costs
# more than one more message.
PACKED_BYTES = 64 * 1024
ALIGNMENT_BYTES = 16


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True)
class Layout:
    """How the tensors of one message lie in buffers of bytes.

    shapes: (dtype, shape) of each tensor.
    """

    shapes: tuple[tuple[torch.dtype, torch.Size], ...]

    @classmethod
    def of(cls, tensors: tuple[Tensor, ...]) -> "Layout":
        return cls(tuple((tensor.dtype, tensor.shape) for tensor in tensors))

    @cached_property
    def _sizes_bytes(self) -> tuple[int, ...]:
        return tuple(dtype.itemsize * shape.numel() for dtype, shape in self.shapes)

    @cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Per buffer, the indices of its tensors. Tensors without elements are in none."""
        parts: list[list[int]] = []
        room = 0
        for index, size in enumerate(self._sizes_bytes):
            if size == 0:
                continue
            if not parts or _padded(size) > room:
                parts.append([])
                room = PACKED_BYTES
            parts[-1].append(index)
            room -= _padded(size)
        return tuple(map(tuple, parts))

    def pack(self, tensors: tuple[Tensor, ...]) -> Iterator[Tensor]:
        """One flat uint8 tensor per buffer; of a single contiguous tensor it is a view."""
        for part in self.parts:
            if len(part) == 1:
                yield _as_bytes(tensors[part[0]])
                continue
            buffer = self._empty(part, tensors[0].device)
            for index, piece in self._pieces(part, buffer):
                piece.copy_(_as_bytes(tensors[index]))
            yield buffer

    def empty(self, device: torch.device) -> list[Tensor]:
        """Buffers to receive into."""
        return [self._empty(part, device) for part in self.parts]

    def unpack(self, buffers: list[Tensor], device: torch.device) -> tuple[Tensor, ...]:
        """The tensors as views of the buffers that were received."""
        found = {
            index: piece
            for part, buffer in zip(self.parts, buffers, strict=True)
            for index, piece in self._pieces(part, buffer)
        }
        return tuple(
            found[index].view(dtype).view(shape)
            if index in found
            else torch.empty(shape, dtype=dtype, device=device)
            for index, (dtype, shape) in enumerate(self.shapes)
        )

    def _empty(self, part: tuple[int, ...], device: torch.device) -> Tensor:
        *firsts, last = (self._sizes_bytes[index] for index in part)
        size_bytes = sum(map(_padded, firsts)) + last
        return torch.empty(size_bytes, dtype=torch.uint8, device=device)

    def _pieces(self, part: tuple[int, ...], buffer: Tensor) -> Iterator[tuple[int, Tensor]]:
        if len(part) == 1:
            yield part[0], buffer
            return
        offset = 0
        for index in part:
            size = self._sizes_bytes[index]
            yield index, buffer[offset : offset + size]
            offset += _padded(size)


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


def shapes_changed(channel: str, key: Hashable, known: Layout, new: Layout) -> UsageError:
    """The error of a message whose key promised other shapes."""
    text = (
        f"key {key}: {list(new.shapes)}, before: {list(known.shapes)}; "
        "make the key depend on everything that the shapes follow from"
    )
    return UsageError(f"the shapes of a message on channel {channel} changed", [text])
