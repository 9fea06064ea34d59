"""Messages between processes of one machine, through memory that both have mapped (Linux).

gloo would send them over loopback TCP: three segments and four changes of thread for each.  Here a
message is one copy into a slot of a file in memory, one system call to say so, one to hear it, and
one copy out of it, all in the thread that computes.  Collectives are gloo's.

Per directed pair there is one file: first a ring of slot positions, the k-th of which belongs to
the k-th buffer sent, then the slots, of which there are as many as were ever under way at once.
The file has no name, so nothing is left behind however the processes end.
"""

import mmap
import os
import select
import socket
import uuid
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not so declared

from evener.executor.launch import Rank
from evener.executor.packing import Layout
from evener.executor.torch_transport import Shapes, TorchTransport
from evener.executor.trace import this_machine

_RING_SLOTS = 1 << 16
_RING_BYTES = 8 * _RING_SLOTS
_SMALLEST_BYTES = 1 << 12  # a page: positions in the file must be multiples of it
_NETWORK = Path("/proc/self/ns/net")


def transport_for(rank: Rank, device: torch.device) -> "type[TorchTransport]":
    """The fastest transport between all ranks; a collective over all, with one answer for all.

    device: that the rank computes on.
    """
    can = device.type == "cpu" and hasattr(os, "memfd_create") and _NETWORK.exists()
    # Processes of one machine meet at a socket, which they find only in one network namespace.
    place = f"{this_machine()} {_NETWORK.readlink()}" if can else f"rank {rank.index}"
    rank.store.set(f"place/{rank.index}", place)
    places = {rank.store.get(f"place/{index}") for index in range(rank.num_ranks)}
    return SharedMemoryTransport if can and len(places) == 1 else TorchTransport


def connect(
    rank: Rank,
    device: torch.device,
    pairs: Sequence[tuple[int, int]],
    groups: Sequence[tuple[int, ...]] = (),
) -> TorchTransport:
    """Connect all ranks by the fastest transport between them; a collective over all.

    device: that the rank computes on. pairs, groups: as in ``TorchTransport``.
    """
    return transport_for(rank, device)(
        rank.store,
        worker=rank.index,
        num_workers=rank.num_ranks,
        pairs=pairs,
        groups=groups,
        device=device,
    )


class SharedMemoryTransport(TorchTransport):
    """A ``TorchTransport`` on CPUs whose messages do not go through gloo.

    Only for ranks for which ``transport_for`` chooses it.
    """

    def _connect(self, store: Store, pairs: Sequence[tuple[int, int]]) -> None:
        assert not self._is_gpu, "GPUs do not compute in this memory"
        targets = [target for source, target in pairs if source == self.worker]
        sources = [source for source, target in pairs if target == self.worker]
        # Nobody waits before all that others wait for has been done.
        listeners = [_listen(store, (self.worker, target)) for target in targets]
        connections = [_connect(store, (source, self.worker)) for source in sources]
        for target, listener in zip(targets, listeners, strict=True):
            shapes = Shapes(store, f"{self.worker}>{target}")
            self._senders[target] = _MemorySender(shapes, _offer(listener), self._timeout_s)
        for source, connection in zip(sources, connections, strict=True):
            shapes = Shapes(store, f"{source}>{self.worker}")
            self._receivers[source] = _MemoryReceiver(shapes, _join(connection), self._timeout_s)


class _Lane:
    """The file of a directed pair, and who has got how far.

    sent, taken: event descriptors that count buffers.
    """

    def __init__(self, file: int, sent: int, taken: int) -> None:
        self.descriptors = (file, sent, taken)
        self.sent, self.taken = _Counter(sent), _Counter(taken)
        self.ring = self.map(0, _RING_BYTES).view(torch.int64)

    def map(self, position: int, size_bytes: int) -> Tensor:
        """A part of the file as bytes."""
        memory = mmap.mmap(self.descriptors[0], size_bytes, offset=position)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class _Counter:
    """An event descriptor that can be waited for."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def add(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def take(self) -> int:
        """What has been added and not been taken, which may be 0."""
        try:
            return os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return 0

    def wait(self, timeout_s: float) -> int:
        """The same, but 1 or more. Raises RuntimeError if nothing comes."""
        while not (taken := self.take()):
            if not self._poll.poll(1000 * timeout_s):
                raise RuntimeError(f"no message within {timeout_s:g} s")
        return taken


@dataclass
class _Slot:
    position: int
    memory: Tensor  # uint8[size]


class _MemorySender:
    """Copies into a slot of which the target has taken what lay in it before."""

    def __init__(self, shapes: Shapes, lane: _Lane, timeout_s: float) -> None:
        self._shapes = shapes
        self._lane = lane
        self._timeout_s = timeout_s
        self._end = _RING_BYTES
        self._num_sent = 0
        self._under_way: deque[_Slot] = deque()
        self._free: dict[int, list[_Slot]] = defaultdict(list)  # by size

    def send(self, key: Hashable, tensors: tuple[Tensor, ...]) -> None:
        for buffer in self._shapes.of_sent(key, tensors).pack(tensors):
            self._collect(self._lane.taken.take())
            if len(self._under_way) == _RING_SLOTS:
                self._collect(self._lane.taken.wait(self._timeout_s))
            slot = self._slot(_slot_bytes(buffer.nbytes))
            slot.memory[: buffer.nbytes].copy_(buffer)
            self._lane.ring[self._num_sent % _RING_SLOTS] = slot.position
            self._num_sent += 1
            self._under_way.append(slot)
            self._lane.sent.add()

    def _collect(self, num_taken: int) -> None:
        for _ in range(num_taken):
            slot = self._under_way.popleft()
            self._free[slot.memory.nbytes].append(slot)

    def _slot(self, size_bytes: int) -> _Slot:
        if self._free[size_bytes]:
            return self._free[size_bytes].pop()
        position = self._end
        self._end += size_bytes
        os.truncate(self._lane.descriptors[0], self._end)
        return _Slot(position, self._lane.map(position, size_bytes))

    def flush(self) -> None:
        """Nothing to wait for: what was sent has been copied."""

    def close(self) -> None:
        self._lane.close()


class _MemoryReceiver:
    """Takes messages in the order in which they were asked for."""

    def __init__(self, shapes: Shapes, lane: _Lane, timeout_s: float) -> None:
        self._shapes = shapes
        self._lane = lane
        self._timeout_s = timeout_s
        self._num_taken = 0
        self._num_here = 0
        self._slots: dict[int, Tensor] = {}  # by position
        self._asked: deque[_MemoryMessage] = deque()

    def receive(self, key: Hashable) -> "_MemoryMessage":
        message = _MemoryMessage(self, key)
        self._asked.append(message)
        return message

    def take_until(self, message: "_MemoryMessage") -> None:
        while not message.is_taken:
            first = self._asked.popleft()
            if first.key not in self._shapes.layouts:
                self._shapes.learn(first.key)
            first.tensors = self._take(self._shapes.layouts[first.key])
            first.is_taken = True

    def _take(self, layout: Layout) -> tuple[Tensor, ...]:
        cpu = torch.device("cpu")
        buffers = layout.empty(cpu)
        for buffer in buffers:
            if not self._num_here:
                self._num_here = self._lane.sent.wait(self._timeout_s)
            position = int(self._lane.ring[self._num_taken % _RING_SLOTS])
            memory = self._slots.get(position)
            if memory is None:
                memory = self._lane.map(position, _slot_bytes(buffer.nbytes))
                self._slots[position] = memory
            buffer.copy_(memory[: buffer.nbytes])
            self._num_here -= 1
            self._num_taken += 1
            self._lane.taken.add()
        return layout.unpack(buffers, cpu)


@dataclass(eq=False)
class _MemoryMessage:
    """A message that was asked for. tensors: once it has been taken."""

    receiver: _MemoryReceiver
    key: Hashable
    is_taken: bool = False
    tensors: tuple[Tensor, ...] = field(default=())

    def wait(self) -> tuple[Tensor, ...]:
        self.receiver.take_until(self)
        return self.tensors


def _slot_bytes(num_bytes: int) -> int:
    """A power of two, so that a slot serves messages of many sizes."""
    return max(_SMALLEST_BYTES, 1 << (num_bytes - 1).bit_length())


def _listen(store: Store, pair: tuple[int, int]) -> socket.socket:
    name = f"evener-{uuid.uuid4().hex}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")  # not in the file system
    listener.listen(1)
    store.set(f"lane/{pair}", name)
    return listener


def _offer(listener: socket.socket) -> _Lane:
    """Make a lane and hand its descriptors to the target."""
    flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
    file = os.memfd_create("evener")
    os.truncate(file, _RING_BYTES)
    descriptors = [file, os.eventfd(0, flags), os.eventfd(0, flags)]
    with listener, listener.accept()[0] as connection:
        socket.send_fds(connection, [b"lane"], descriptors)
    return _Lane(*descriptors)


def _connect(store: Store, pair: tuple[int, int]) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + store.get(f"lane/{pair}").decode())
    return connection


def _join(connection: socket.socket) -> _Lane:
    """Take the descriptors that the source hands over."""
    with connection:
        _, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    return _Lane(*descriptors)
