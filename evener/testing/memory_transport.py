"""Workers as threads of one process: the transport for tests of the executor without processes."""

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from evener.executor.packing import Layout
    from evener.executor.transport import Handle

Result = TypeVar("Result")


def run_in_memory(
    num_workers: int, function: "Callable[[MemoryTransport], Result]", *, timeout_s: float = 20.0
) -> list[Result]:
    """What ``function`` returns for each worker, all of them running at once.

    timeout_s: of any single wait; then TimeoutError. Raises what the first failed worker raised,
    after all have ended.
    """
    network = _Network(timeout_s)
    with ThreadPoolExecutor(num_workers) as pool:
        futures = [
            pool.submit(_run, function, MemoryTransport(network, worker, num_workers))
            for worker in range(num_workers)
        ]
    if network.failure is not None:
        raise network.failure
    return [future.result() for future in futures]


def _run(function: "Callable[[MemoryTransport], Result]", transport: "MemoryTransport") -> Result:
    try:
        return function(transport)
    except BaseException as error:
        transport.network.abort(error)
        raise


class _Network:
    """Where workers leave values under a name until enough of them are there."""

    def __init__(self, timeout_s: float) -> None:
        self.failure: BaseException | None = None
        self._timeout_s = timeout_s
        self._values: dict[Hashable, dict[int, Any]] = {}
        self._changed = threading.Condition()

    def leave(self, name: Hashable, worker: int, value: Any) -> None:
        with self._changed:
            self._values.setdefault(name, {})[worker] = value
            self._changed.notify_all()

    def all_left(self, name: Hashable, num_members: int) -> list[Any]:
        """The values of all members, by worker."""

        def is_over() -> bool:
            return self.failure is not None or len(self._values.get(name, ())) == num_members

        with self._changed:
            if not self._changed.wait_for(is_over, self._timeout_s):
                raise TimeoutError(f"{name}: {self._timeout_s:g} s were not enough")
            if self.failure is not None:
                raise ConnectionError("another worker failed")
            return [value for _, value in sorted(self._values[name].items())]

    def forget(self, name: Hashable) -> None:
        """Let go of values that nobody asks for any more."""
        with self._changed:
            del self._values[name]

    def abort(self, error: BaseException) -> None:
        """Make all who wait give up. The first error is kept."""
        with self._changed:
            self.failure = self.failure or error
            self._changed.notify_all()


class MemoryTransport:
    """A ``Transport`` of one worker."""

    def __init__(self, network: _Network, worker: int, num_workers: int) -> None:
        self.network = network
        self.worker = worker
        self.num_workers = num_workers
        self._counts: Counter[Hashable] = Counter()
        self._layouts: dict[tuple[int, Hashable], Layout] = {}

    def send(self, peer: int, key: Hashable, tensors: "tuple[Tensor, ...]") -> None:
        from evener.executor.packing import Layout, shapes_changed

        layout = Layout.of(tensors)
        known = self._layouts.setdefault((peer, key), layout)
        if known != layout:
            raise shapes_changed(f"{self.worker}>{peer}", key, known, layout)
        copies = tuple(tensor.detach().clone() for tensor in tensors)
        self.network.leave(self._next("message", self.worker, peer), self.worker, copies)

    def receive(self, peer: int, key: Hashable) -> "Handle":
        name = self._next("message", peer, self.worker)
        return _Deferred(lambda: self._take(name))

    def _take(self, name: Hashable) -> "tuple[Tensor, ...]":
        (tensors,) = self.network.all_left(name, 1)
        self.network.forget(name)
        return tensors

    def all_reduce(
        self, members: tuple[int, ...], tensor: "Tensor", *, maximum: bool = False
    ) -> "Handle":
        name = self._next("all_reduce", *members)
        self.network.leave(name, self.worker, tensor.clone())
        return _Deferred(lambda: self._reduce(name, len(members), tensor, maximum))

    def _reduce(
        self, name: Hashable, num_members: int, tensor: "Tensor", maximum: bool
    ) -> "tuple[Tensor, ...]":
        first, *others = self.network.all_left(name, num_members)
        tensor.copy_(first)
        for other in others:
            tensor.copy_(tensor.maximum(other) if maximum else tensor + other)
        return (tensor,)

    def broadcast(
        self, tensor: "Tensor", source: int, members: tuple[int, ...] | None = None
    ) -> "Handle":
        name = self._next("broadcast", members)
        if self.worker == source:
            self.network.leave(name, self.worker, tensor.clone())
        return _Deferred(lambda: (tensor.copy_(self.network.all_left(name, 1)[0]),))

    def gather(self, value: Any) -> list[Any]:
        name = self._next("gather")
        self.network.leave(name, self.worker, value)
        return self.network.all_left(name, self.num_workers)

    def barrier(self) -> None:
        self.gather(None)

    def flush(self) -> None:
        """Nothing to wait for: what is sent is there at once."""

    def close(self) -> None:
        self.barrier()

    def _next(self, *name: Hashable) -> Hashable:
        """A name that the other members come up with as well: the n-th of its kind."""
        self._counts[name] += 1
        return (*name, self._counts[name])


class _Deferred:
    """A handle that does its work when it is waited for."""

    def __init__(self, wait: "Callable[[], tuple[Tensor, ...]]") -> None:
        self.wait = wait
