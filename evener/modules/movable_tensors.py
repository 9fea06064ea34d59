"""What a forward saves for its backward, held so that it can leave the device and come back.

Autograd keeps a handle in place of each saved tensor (``saved_tensors_hooks``), and the backward
asks the handle.  Memory is moved storage by storage, since tensors share it: views of one storage
leave together and come back as views of one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias
from weakref import ref

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from evener.modules.memory_owner import memory_of


class _Handle:
    """One saved tensor: itself, or None while it is away, and how it lies in its storage."""

    __slots__ = ("__weakref__", "lies", "tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        self.version = tensor._version
        self.lies = (tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride())

    def require_unchanged(self) -> Tensor:
        if self.tensor is None:
            raise RuntimeError(_AWAY)
        if self.tensor._version != self.version:
            raise RuntimeError(_CHANGED)
        return self.tensor

    def come_back(self, storage: torch.UntypedStorage) -> None:
        dtype, offset, shape, stride = self.lies
        empty = torch.empty(0, dtype=dtype, device=storage.device)
        self.tensor = empty.set_(storage, offset, shape, stride)
        self.version = self.tensor._version


Packed: TypeAlias = Tensor | _Handle


class MovableTensors:
    """The saved tensors of one forward.

    on_memory: told of each tensor whose memory is held for the backward from now on.
    inputs: the leaves of the forward, of which the backward reads no more than shape and gradient.
    """

    def __init__(self, on_memory: Callable[[Tensor], None] | None = None) -> None:
        self.inputs: Sequence[Tensor] = ()
        self._on_memory = on_memory
        # By where their storage begins. Weak: what the forward itself lets go of is not held here.
        self._handles: dict[int, list[ref[_Handle]]] = {}
        self._leaving: list[list[_Handle]] = []

    def recording(self) -> saved_tensors_hooks:
        """The context in which the forward runs."""
        return saved_tensors_hooks(self.pack, unpack)

    def pack(self, tensor: Tensor) -> Packed:
        """What autograd (or whoever keeps the tensor) holds in place of it; see ``unpack``."""
        memory = memory_of(tensor)
        if memory is None:
            return tensor
        # Not the tensor itself: that could be what holds the graph, and the graph holds this.
        handle = _Handle(tensor.detach())
        self._handles.setdefault(memory, []).append(ref(handle))
        if self._on_memory is not None:
            self._on_memory(tensor)
        return handle

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """Never move what shares memory with these: parameters, the batch, what others hold."""
        for tensor in tensors:
            self._handles.pop(memory_of(tensor) or 0, None)

    def leave(self, num_bytes: int | None) -> list[Tensor]:
        """Choose what leaves: the fewest storages, first saved first, of ``num_bytes`` or more.

        num_bytes: None means all. Returns the bytes of each, flat; nobody may write to them.
        """
        sources: list[Tensor] = []
        total = 0
        for handles in filter(None, map(_alive, self._handles.values())):
            if num_bytes is not None and total >= num_bytes:
                break
            storage = handles[0].require_unchanged().untyped_storage()
            sources.append(_flat(storage))
            self._leaving.append(handles)
            total += storage.nbytes()
        return sources

    def let_go(self) -> None:
        """The copies are complete: drop the originals.

        Raises RuntimeError if a tensor was changed in place since it was saved.
        """
        gone = {memory_of(handle.require_unchanged()) for own in self._leaving for handle in own}
        for handle in (handle for own in self._leaving for handle in own):
            handle.tensor = None
        for leaf in self.inputs:
            if memory_of(leaf) in gone:
                leaf.data = leaf.new_zeros(()).expand(leaf.shape)

    def come_back(self, tensors: Sequence[Tensor]) -> None:
        """Take over the bytes that ``leave`` gave, in new memory; the backward frees it."""
        for own, tensor in zip(self._leaving, tensors, strict=True):
            for handle in own:
                handle.come_back(tensor.untyped_storage())
        self._leaving = []
        self._handles = {}


def unpack(packed: Packed) -> Tensor:
    """The tensor that ``pack`` was given. RuntimeError if it is away, or was changed in place."""
    return packed.require_unchanged() if isinstance(packed, _Handle) else packed


def _alive(handles: Iterable["ref[_Handle]"]) -> list[_Handle]:
    return [handle for each in handles if (handle := each()) is not None]


def _flat(storage: torch.UntypedStorage) -> Tensor:
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage, 0, (storage.nbytes(),), (1,))


_AWAY = "a saved tensor is asked for while it is in host memory: the plan lacks a RELOAD before"

_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation after its forward had saved it"
)
