"""Who says when an action started and ended: the wall, or a clock that the messages carry along."""

import time
from array import array
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from evener.executor.transport import Handle


class Clock(Protocol):
    """Times of one worker's actions, by their position in its list.

    start_ns, end_ns: one value per position, filled while a step runs.
    """

    start_ns: "array[int]"
    end_ns: "array[int]"

    def compute(self, position: int, run: Callable[[], None]) -> None:
        """Run a compute action, or charge its cost instead of running it."""
        ...

    def sent(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A SEND is issued now; return what really travels."""
        ...

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A RECV has brought these tensors; return those that are the engine's."""
        ...

    def issued(self, position: int, start: Callable[[], Handle]) -> Handle:
        """A collective is issued now; return the handle to wait for."""
        ...

    def ended(self, position: int) -> None:
        """The collective's handle has been waited for."""
        ...


class WallClock:
    """The clock of the machine, in nanoseconds of CLOCK_MONOTONIC.

    A message is stamped when it is issued by its sender and when it is taken by its receiver.
    synchronize: called before a time is read, on devices that run behind the host.
    """

    def __init__(self, num_actions: int, synchronize: Callable[[], None] | None = None) -> None:
        self.start_ns = array("q", bytes(8 * num_actions))
        self.end_ns = array("q", bytes(8 * num_actions))
        self._synchronize = synchronize

    def _now_ns(self) -> int:
        if self._synchronize is not None:
            self._synchronize()
        return time.monotonic_ns()

    def compute(self, position: int, run: Callable[[], None]) -> None:
        self.start_ns[position] = self._now_ns()
        run()
        self.end_ns[position] = self._now_ns()

    def sent(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.start_ns[position] = self.end_ns[position] = self._now_ns()
        return tensors

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.start_ns[position] = self.end_ns[position] = self._now_ns()
        return tensors

    def issued(self, position: int, start: Callable[[], Handle]) -> Handle:
        self.start_ns[position] = self._now_ns()
        return start()

    def ended(self, position: int) -> None:
        self.end_ns[position] = self._now_ns()
