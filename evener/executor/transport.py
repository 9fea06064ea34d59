"""Messages between workers: what the loop asks of gloo, NCCL or of threads in one process."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from torch import Tensor


class Handle(Protocol):
    """Something that was started and will end."""

    def wait(self) -> tuple[Tensor, ...]:
        """Return when it has ended, with the tensors that it brought."""
        ...


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

        members: ascending, this worker included, one of the groups that the transport was made for.
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


def member_groups(groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The distinct groups of two or more members in the one order that all workers agree on."""
    return sorted({tuple(sorted(set(group))) for group in groups if len(set(group)) > 1})
