"""Who says when an action started and ended."""

import time
from array import array
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from evener.executor.transport import Handle
from evener.interp.worker import WorkerProgram


class Clock(Protocol):
    """Times of one worker's actions, by their position in its list.

    start_ns, end_ns: one value per position, overwritten by every step.
    """

    start_ns: "array[int]"
    end_ns: "array[int]"

    def begin_step(self) -> None: ...

    def compute(self, position: int, run: Callable[[], None], needs: tuple[int, ...]) -> None:
        """Run a compute action, or charge its cost instead of running it.

        needs: positions of the receives and collectives that it waited for.
        """
        ...

    def sent(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A SEND is issued now; return what really travels."""
        ...

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A RECV has brought these tensors; return those that are the engine's."""
        ...

    def issued(self, position: int, start: Callable[[], Handle]) -> Handle:
        """A collective or a copy is issued now; return the handle to wait for."""
        ...

    def ended(self, position: int) -> None:
        """The handle of the collective or copy has been waited for."""
        ...


def no_times(program: WorkerProgram) -> "array[int]":
    """One value per action of a worker."""
    return array("q", bytes(8 * len(program)))


class WallClock:
    """The clock of the machine, in nanoseconds of CLOCK_MONOTONIC.

    Of a message, the sender notes when it was issued and the receiver when it was taken;
    ``trace`` puts the two together.
    synchronize: called before a time is read, for devices that run behind the host.
    """

    def __init__(
        self, program: WorkerProgram, synchronize: Callable[[], None] | None = None
    ) -> None:
        self.start_ns = no_times(program)
        self.end_ns = no_times(program)
        self._synchronize = synchronize

    def begin_step(self) -> None:
        """Nothing to do: this clock never stands still."""

    def _now_ns(self) -> int:
        if self._synchronize is not None:
            self._synchronize()
        return time.monotonic_ns()

    def compute(self, position: int, run: Callable[[], None], needs: tuple[int, ...]) -> None:
        self.start_ns[position] = self._now_ns()
        run()
        self.end_ns[position] = self._now_ns()

    def sent(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.start_ns[position] = self.end_ns[position] = time.monotonic_ns()
        return tensors

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.start_ns[position] = self.end_ns[position] = self._now_ns()
        return tensors

    def issued(self, position: int, start: Callable[[], Handle]) -> Handle:
        self.start_ns[position] = self._now_ns()
        return start()

    def ended(self, position: int) -> None:
        self.end_ns[position] = self._now_ns()
