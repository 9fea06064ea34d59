"""Clocks by which messages and collectives take the time that a cost table says.

Both follow the rules of ``sim``.  What other workers must know of a time travels with the real
messages, and the members of a collective exchange when they are ready.
"""

import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import torch
from torch import Tensor

from evener.cost.table import CostTable
from evener.executor.clock import no_times
from evener.executor.transport import FutureHandle, Handle, Transport
from evener.interp.worker import WorkerProgram
from evener.ir.action import Kind
from evener.ir.rules import RULES, Stream

Charge: TypeAlias = Callable[[int, Callable[[], None]], int]
"""Says what a compute action costs in nanoseconds, given its position and how to run it."""


class Durations:
    """A cost table looked up for one worker's actions, by position.

    duration_ns: of compute actions and collectives; of sends, how long they keep their channel.
        A braid's first action takes none, its second one that of both.
    latency_ns: of receives. peer: worker at the other end of a message. members: of a collective.
    braids: as in the program. copies: the direction in which an OFFLOAD or RELOAD goes.
    """

    def __init__(self, program: WorkerProgram, costs: CostTable) -> None:
        self.duration_ns: dict[int, int] = {}
        self.latency_ns: dict[int, int] = {}
        self.peer: dict[int, int] = {}
        self.members: dict[int, tuple[int, ...]] = {}
        self.copies: dict[int, Stream] = {}
        self.braids = program.braids
        own = program.worker
        steps = list(program)
        for position, action, _ in steps:
            stream = RULES[action.kind].stream
            if stream is not Stream.MESSAGE:
                self.duration_ns[position] = costs.action_ns(own, action)
                if stream is Stream.COLLECTIVE:
                    self.members[position] = program.members(action)
                elif stream is not Stream.COMPUTE:
                    self.copies[position] = stream
                continue
            peer = self.peer[position] = program.peer_worker(action)
            if action.kind in (Kind.SEND_F, Kind.SEND_B):
                self.duration_ns[position] = costs.message_ns(own, peer, action)
            else:
                self.latency_ns[position] = int(costs.latency_ns[peer, own])
        for second, first in program.braids.items():
            pair = (steps[first].action, steps[second].action)
            self.duration_ns[first], self.duration_ns[second] = 0, costs.together_ns(own, pair)


def charge_table(durations: Durations) -> Charge:
    """Charge what the table says and run nothing."""
    return lambda position, run: durations.duration_ns[position]


def charge_thread_time(position: int, run: Callable[[], None]) -> int:
    """Run the action and charge the CPU time of this thread.

    That is all of it: on CPUs, torch's backward runs in the thread that asks for it.
    """
    before_ns = time.thread_time_ns()
    run()
    return time.thread_time_ns() - before_ns


class _Links:
    """When messages and copies go, each link and direction one after the other.

    start_ns, end_ns: of the clock, by position; noted here.
    """

    def __init__(self, durations: Durations, start_ns: "array[int]", end_ns: "array[int]") -> None:
        self._durations = durations
        self._start_ns, self._end_ns = start_ns, end_ns
        self._free_ns: dict[int | Stream, int] = {}  # peers, and directions of copies

    def begin_step(self) -> None:
        self._free_ns.clear()

    def sent(self, position: int, tensors: tuple[Tensor, ...], now_ns: int) -> tuple[Tensor, ...]:
        """What leaves: the times of the message come first."""
        self._occupy(self._durations.peer[position], position, now_ns)
        times = torch.tensor([self._start_ns[position], self._end_ns[position]])
        return (times, *tensors)

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        start_ns, end_ns = tensors[0].tolist()
        latency_ns = self._durations.latency_ns[position]
        self._start_ns[position] = start_ns + latency_ns
        self._end_ns[position] = end_ns + latency_ns
        return tensors[1:]

    def copies(self, position: int, now_ns: int) -> bool:
        """Whether the action is a copy; if so, its times are noted."""
        direction = self._durations.copies.get(position)
        if direction is not None:
            self._occupy(direction, position, now_ns)
        return direction is not None

    def _occupy(self, link: int | Stream, position: int, now_ns: int) -> None:
        start_ns = max(now_ns, self._free_ns.get(link, 0))
        end_ns = start_ns + self._durations.duration_ns[position]
        self._start_ns[position] = start_ns
        self._free_ns[link] = self._end_ns[position] = end_ns


class VirtualClock:
    """Each worker's own time, advanced by what actions cost and by the times that messages bring.

    With costs from a table, the times of every action are the simulator's to the nanosecond,
    whatever the machine does meanwhile.  Every step begins at 0.

    charge: what compute actions cost.
    """

    def __init__(
        self,
        program: WorkerProgram,
        *,
        durations: Durations,
        transport: Transport,
        charge: Charge,
    ) -> None:
        self.start_ns = no_times(program)
        self.end_ns = no_times(program)
        self._durations = durations
        self._transport = transport
        self._charge = charge
        self._now_ns = 0  # when the last compute action ended
        self._links = _Links(durations, self.start_ns, self.end_ns)
        self._collective_ns = 0  # when the last collective ended
        # A collective runs beside the worker, and begins no earlier than the one before it ended.
        self._collectives = ThreadPoolExecutor(max_workers=1)

    def begin_step(self) -> None:
        self._now_ns = 0
        self._links.begin_step()
        self._collective_ns = 0

    def compute(self, position: int, run: Callable[[], None], needs: tuple[int, ...]) -> None:
        start_ns = self._now_ns
        for need in needs:
            start_ns = max(start_ns, self.end_ns[need])
        self.start_ns[position] = start_ns
        self._now_ns = self.end_ns[position] = start_ns + self._charge(position, run)
        first = self._durations.braids.get(position)
        if first is not None:
            self.start_ns[first], self.end_ns[first] = start_ns, self._now_ns

    def sent(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self._links.sent(position, tensors, self._now_ns)

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self._links.received(position, tensors)

    def issued(self, position: int, start: Callable[[], Handle]) -> Handle:
        if self._links.copies(position, self._now_ns):
            return start()
        return FutureHandle(self._collectives.submit(self._run, position, self._now_ns, start))

    def _run(self, position: int, issue_ns: int, start: Callable[[], Handle]) -> tuple[()]:
        start_ns, duration_ns = _latest(
            self._transport,
            self._durations.members[position],
            max(issue_ns, self._collective_ns),
            self._durations.duration_ns[position],
        )
        self.start_ns[position] = start_ns
        self._collective_ns = self.end_ns[position] = start_ns + duration_ns
        start().wait()
        return ()

    def ended(self, position: int) -> None:
        """Nothing to do: the times were noted when the copy was issued or the collective ran."""


class SleepClock:
    """Real time in which compute is sleeping and links are shaped in latency and bandwidth.

    A message leaves at once and brings along when it would have arrived on its link; the receiver
    sleeps until then.  So no thread is needed per link, and sleeping frees the processor for the
    other workers: 16 of them run on 2 cores.

    The clock is CLOCK_MONOTONIC, which all processes of a machine share.  Sends and receives are
    noted with the times of the link, all else with the times that passed.
    """

    def __init__(
        self, program: WorkerProgram, *, durations: Durations, transport: Transport
    ) -> None:
        self.start_ns = no_times(program)
        self.end_ns = no_times(program)
        self._durations = durations
        self._transport = transport
        self._links = _Links(durations, self.start_ns, self.end_ns)
        self._collectives = ThreadPoolExecutor(max_workers=1)

    def begin_step(self) -> None:
        """Nothing to do: real time goes on."""

    def compute(self, position: int, run: Callable[[], None], needs: tuple[int, ...]) -> None:
        self._sleep(position, time.monotonic_ns(), self._durations.duration_ns[position])

    def sent(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self._links.sent(position, tensors, time.monotonic_ns())

    def received(self, position: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        payload = self._links.received(position, tensors)
        _sleep_until(self.end_ns[position])
        return payload

    def issued(self, position: int, start: Callable[[], Handle]) -> Handle:
        if self._links.copies(position, time.monotonic_ns()):
            return SleepHandle(self.end_ns[position])
        return FutureHandle(self._collectives.submit(self._run, position, start))

    def _run(self, position: int, start: Callable[[], Handle]) -> tuple[()]:
        start_ns, duration_ns = _latest(
            self._transport,
            self._durations.members[position],
            time.monotonic_ns(),
            self._durations.duration_ns[position],
        )
        self._sleep(position, start_ns, duration_ns)
        start().wait()
        return ()

    def ended(self, position: int) -> None:
        """Nothing to do: the end was noted when the copy was issued or the collective ended."""

    def _sleep(self, position: int, start_ns: int, duration_ns: int) -> None:
        self.start_ns[position] = start_ns
        _sleep_until(start_ns + duration_ns)
        self.end_ns[position] = time.monotonic_ns()


class SleepHandle:
    """Something that ends at a time of CLOCK_MONOTONIC."""

    def __init__(self, end_ns: int) -> None:
        self._end_ns = end_ns

    def wait(self) -> tuple[()]:
        _sleep_until(self._end_ns)
        return ()


def _latest(
    transport: Transport, members: tuple[int, ...], ready_ns: int, duration_ns: int
) -> tuple[int, int]:
    """When the last member is ready, and the longest of their durations."""
    latest = torch.tensor([ready_ns, duration_ns])
    transport.all_reduce(members, latest, maximum=True).wait()
    start_ns, longest_ns = latest.tolist()
    return start_ns, longest_ns


def _sleep_until(deadline_ns: int) -> None:
    while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)
