"""The processes that measure at the same time, as the executor's transports offer them."""

from collections.abc import Hashable
from typing import Any, Protocol

from torch import Tensor


class Peers(Protocol):
    """One of several workers that measure in step, so that each meets the others' contention.

    worker: its index. num_workers: how many there are.
    """

    worker: int
    num_workers: int

    def gather(self, value: Any) -> list[Any]:
        """Everybody's value, by worker; returns when all have called it."""
        ...


class Incoming(Protocol):
    """A message that was asked for."""

    def wait(self) -> tuple[Tensor, ...]: ...


class Messenger(Peers, Protocol):
    """Peers that send messages to one another."""

    def send(self, peer: int, key: Hashable, tensors: tuple[Tensor, ...]) -> None:
        """Start to send. Equal keys mean equal shapes."""
        ...

    def receive(self, peer: int, key: Hashable) -> Incoming:
        """Ask for the next message of ``peer``."""
        ...

    def flush(self) -> None:
        """Return when all that was sent has arrived."""
        ...


class Alone:
    """Peers of a single process."""

    worker = 0
    num_workers = 1

    def gather(self, value: Any) -> list[Any]:
        return [value]
