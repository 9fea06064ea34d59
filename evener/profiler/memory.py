"""What autograd keeps between a forward and its backward, counted tensor by tensor."""

from typing import Self
from weakref import ref

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class _Kept:
    """A saved tensor. It lives as long as the graph wants it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        # Detached: an operation that saves its own output would keep itself alive.
        self.tensor = tensor.detach()


class SavedTensors:
    """While it is the context, counts what the operations save for their backward.

    Parameters and buffers of ``module`` do not count: they are there anyway.  Tensors that share
    a storage count once, with the whole storage, since that is what stays alive.
    """

    def __init__(self, module: nn.Module) -> None:
        self._permanent = {
            tensor.untyped_storage().data_ptr()
            for tensor in (*module.parameters(), *module.buffers())
        }
        self._saved: list[ref[_Kept]] = []
        self._hooks = saved_tensors_hooks(self._pack, lambda kept: kept.tensor)

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor)
        self._saved.append(ref(kept))
        return kept

    @property
    def num_bytes(self) -> int:
        """Of all that was saved and is still alive."""
        alive = (saved() for saved in self._saved)
        storages = {
            storage.data_ptr(): storage.nbytes()
            for kept in alive
            if kept is not None
            for storage in [kept.tensor.untyped_storage()]
        }
        return sum(size for place, size in storages.items() if place not in self._permanent)
