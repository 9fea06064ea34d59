"""Messages between workers: what the loop asks of gloo, NCCL or of threads in one process."""

from collections.abc import Hashable
from concurrent.futures import Future
from typing import Any, Protocol

from torch import Tensor

from evener.ir.action import Kind
from evener.ir.dependencies import resolve
from evener.ir.schedule import Schedule


class Handle(Protocol):
    """Something that was started and will end."""

    def wait(self) -> tuple[Tensor, ...]:
        """Return when it has ended, with the tensors that it brought."""
        ...


class Done:
    """A handle of something that has ended already."""

    def __init__(self, *tensors: Tensor) -> None:
        self._tensors = tensors

    def wait(self) -> tuple[Tensor, ...]:
        return self._tensors


class FutureHandle:
    """Something that runs in another thread of this process."""

    def __init__(self, future: "Future[tuple[()]]") -> None:
        self._future = future

    def wait(self) -> tuple[()]:
        return self._future.result()


class Transport(Protocol):
    """Ordered messages and collectives of one worker.

    worker: the index of this worker. num_workers: how many there are.

    There are no tags: per directed pair of workers, the k-th ``send`` meets the k-th ``receive``.
    """

    worker: int
    num_workers: int

    def send(self, peer: int, key: Hashable, tensors: tuple[Tensor, ...]) -> None:
        """Start to send and return at once. The tensors must not be written to until ``flush``.

        tensors: any number of any dtype and shape, contiguous or not; zero elements are allowed.
        key: what the shapes follow from. The first message of a key on a directed pair brings its
            shapes along; later ones do not, so equal keys must mean equal shapes.

        Raises UsageError if the shapes differ from those that went under the same key before.
        """
        ...

    def receive(self, peer: int, key: Hashable) -> Handle:
        """Post the next receive from ``peer`` and return at once.

        key: must be new exactly when the sender's key is new.
        """
        ...

    def all_reduce(
        self, members: tuple[int, ...], tensor: Tensor, *, maximum: bool = False
    ) -> Handle:
        """Start to sum (or take the maximum of) ``tensor`` over the members, in place.

        members: ascending, this worker included; one of the groups that the transport was made
            for, or the worker alone.
        """
        ...

    def broadcast(
        self, tensor: Tensor, source: int, members: tuple[int, ...] | None = None
    ) -> Handle:
        """Start to fill ``tensor`` with that of ``source``, in place.

        members: as of ``all_reduce``, ``source`` included; all workers where None.
        """
        ...

    def gather(self, value: Any) -> list[Any]:
        """Everybody's value, by worker: a collective over all, outside of the steps."""
        ...

    def barrier(self) -> None:
        """Return when all workers have arrived."""
        ...

    def flush(self) -> None:
        """Return when all that was sent has arrived."""
        ...

    def close(self) -> None:
        """Let go of all connections; all workers call it together."""
        ...


def connections(schedule: Schedule) -> tuple[list[tuple[int, int]], list[tuple[int, ...]]]:
    """Who sends to whom, and who reduces with whom: the same two sorted lists on all workers.

    Returns the distinct (source, target) pairs of workers and the distinct groups of two or more.
    """
    dependencies = resolve(schedule)
    worker_of = dependencies.worker_of
    pairs = {
        (worker_of[index], worker_of[partner])
        for index, partner in enumerate(dependencies.match)
        if partner >= 0 and dependencies.actions[index].kind in (Kind.SEND_F, Kind.SEND_B)
    }
    groups = {
        tuple(worker_of[index] for index in group)
        for group in dependencies.collectives
        if len(group) > 1
    }
    return sorted(pairs), sorted(groups)
