"""How many bytes of saved activations a worker really holds while it runs."""

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from evener.executor.torch_engine import TorchEngine
from evener.ir.action import Action


class LiveBytes:
    """Watches an engine: what its forwards save, and what of that is still alive after each action.

    after: (action, bytes alive when it had ended), of all compute actions since it was made.

    Make it before the engine's first step, as loops look up ``run`` when they are made.  Storages
    count once, by weak references that expire when the memory is given back, whoever
    holds it.  Parameters and buffers do not count.
    """

    def __init__(self, engine: TorchEngine) -> None:
        self.after: list[tuple[Action, int]] = []
        held = (*engine.model.parameters.values(), *engine.model.rest.values())
        self._permanent = {tensor.untyped_storage().data_ptr() for tensor in held}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._run = engine.run
        engine.run = self._watched  # type: ignore[method-assign]
        if engine.offload is not None:
            engine.offload.on_memory = self._note

    @property
    def peak_bytes(self) -> int:
        """The most that was alive when an action had ended."""
        return max((num_bytes for _, num_bytes in self.after), default=0)

    def _watched(self, action: Action) -> None:
        # Where the engine records a forward to offload it, its own hooks take the place of these.
        with saved_tensors_hooks(self._pack, lambda tensor: tensor):
            self._run(action)
        self._alive = {key: pair for key, pair in self._alive.items() if not pair[0].expired()}
        self.after.append((action, sum(num_bytes for _, num_bytes in self._alive.values())))

    def _pack(self, tensor: Tensor) -> Tensor:
        self._note(tensor)
        # Detached: an operation that saves its own output would keep itself alive.
        return tensor.detach()

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._permanent:
            reference = StorageWeakRef(storage)
            self._alive[reference.cdata] = reference, storage.nbytes()
