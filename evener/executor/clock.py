"""Who says when an action started and ended: the wall, or a clock that the messages carry along."""

import time
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from evener.cost.table import CostTable
from evener.executor.transport import Handle, Transport
from evener.interp.worker import WorkerProgram
from evener.ir.action import Kind
from evener.ir.rules import RULES, Stream

Charge: TypeAlias = Callable[[int, Callable[[], None]], int]
"""Says what a compute action costs in nanoseconds, given its position and how to run it."""


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
        """A collective is issued now; return the handle to wait for."""
        ...

    def ended(self, position: int) -> None:
        """The collective's handle has been waited for."""
        ...


def _zeros(program: WorkerProgram) -> "array[int]":
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
        self.start_ns = _zeros(program)
        self.end_ns = _zeros(program)
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


def charge_table(program: WorkerProgram, costs: CostTable) -> Charge:
    """Charge what the table says and run nothing."""
    cost_ns = {
        step.position: costs.action_ns(program.worker, step.action)
        for step in program
        if RULES[step.action.kind].stream is Stream.COMPUTE
    }
    return lambda position, run: cost_ns[position]


def charge_thread_time(position: int, run: Callable[[], None]) -> int:
    """Run the action and charge the CPU time of this thread.

    That is all of it: on CPUs, torch's backward runs in the thread that asks for it.
    """
    before_ns = time.thread_time_ns()
    run()
    return time.thread_time_ns() - before_ns


class VirtualClock:
    """Each worker's own time, advanced by what actions cost and by the times that messages bring.

    The rules are those of ``sim``, so with costs from a table the times of every action are the
    simulator's to the nanosecond, whatever the machine does meanwhile: a message takes the time at
    which it starts and ends along, the members of a collective exchange the times at which they
    are ready.  Every step begins at 0.

    charge: what compute actions cost. costs: of everything else.
    """

    def __init__(
        self, program: WorkerProgram, *, costs: CostTable, transport: Transport, charge: Charge
    ) -> None:
        self.start_ns = _zeros(program)
        self.end_ns = _zeros(program)
        self._charge = charge
        self._transport = transport
        self._peer: dict[int, int] = {}
        self._duration_ns: dict[int, int] = {}  # of sends on their channel, and of collectives
        self._latency_ns: dict[int, int] = {}  # of receives
        self._members: dict[int, tuple[int, ...]] = {}
        for position, action, _ in program:
            own = program.worker
            if action.kind in (Kind.SEND_F, Kind.SEND_B):
                peer = self._peer[position] = program.peer_worker(action)
                self._duration_ns[position] = costs.message_ns(own, peer, action)
            elif action.kind in (Kind.RECV_F, Kind.RECV_B):
                peer = program.peer_worker(action)
                self._latency_ns[position] = int(costs.latency_ns[peer, own])
            elif RULES[action.kind].stream is Stream.COLLECTIVE:
                self._members[position] = program.members(action)
                self._duration_ns[position] = costs.action_ns(own, action)
        self._now_ns = 0  # when the last compute action ended
        self._channel_ns: dict[int, int] = {}  # when the last send to each peer ended
        self._collective_ns = 0  # when the last collective ended
        # A collective runs beside the worker, and begins no earlier than the one before it ended.
        self._collectives = ThreadPoolExecutor(max_workers=1)

    def begin_step(self) -> None:
        self._now_ns = 0
        self._channel_ns = {}
        self._collective_ns = 0

    def compute(self, position: int, run: Callable[[], None], needs: tuple[int, ...]) -> None:
        start_ns = self._now_ns
        for need in needs:
            start_ns = max(start_ns, self.end_ns[need])
        self.start_ns[position] = start_ns
        self._now_ns = self.end_ns[position] = start_ns + self._charge(position, run)

    def sent(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        peer = self._peer[position]
        start_ns = max(self._now_ns, self._channel_ns.get(peer, 0))
        end_ns = start_ns + self._duration_ns[position]
        self._channel_ns[peer] = end_ns
        self.start_ns[position], self.end_ns[position] = start_ns, end_ns
        return (torch.tensor([start_ns, end_ns]), *tensors)

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        start_ns, end_ns = tensors[0].tolist()
        latency_ns = self._latency_ns[position]
        self.start_ns[position] = start_ns + latency_ns
        self.end_ns[position] = end_ns + latency_ns
        return tensors[1:]

    def issued(self, position: int, start: Callable[[], Handle]) -> Handle:
        return FutureHandle(self._collectives.submit(self._run, position, self._now_ns, start))

    def _run(self, position: int, issue_ns: int, start: Callable[[], Handle]) -> tuple[()]:
        ready_ns = max(issue_ns, self._collective_ns)
        latest = torch.tensor([ready_ns, self._duration_ns[position]])
        self._transport.all_reduce(self._members[position], latest, maximum=True).wait()
        start_ns, duration_ns = latest.tolist()
        self.start_ns[position] = start_ns
        self._collective_ns = self.end_ns[position] = start_ns + duration_ns
        start().wait()
        return ()

    def ended(self, position: int) -> None:
        """Nothing to do: the times were exchanged when the collective ran."""


class FutureHandle:
    """Something that runs in another thread of this process."""

    def __init__(self, future: "Future[tuple[()]]") -> None:
        self._future = future

    def wait(self) -> tuple[()]:
        return self._future.result()
