"""Messages over ``torch.distributed``: gloo between processes on CPUs, NCCL between GPUs.

What both have in common, and what this file rests on:

- per directed pair, order is all that matches a send with its receive;
- a send may be a rendezvous that ends only when the receive is posted, so nobody waits for one
  before ``flush``, and its buffer is kept until it has ended.

Shapes that are new to a directed pair go through the key-value store, never through the pair
itself.  So what a pair carries is known to both sides, whatever is posted when.
"""

import pickle
import threading
import time
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not so declared

from evener.executor.packing import Layout, shapes_changed
from evener.executor.transport import Done, Handle

_LOOK_EVERY_S = 0.02
_MUCH_BYTES = 8 << 20


class TorchTransport:
    """Workers are the ranks of the default process group, which is made here.

    store: where ranks meet; later it carries shapes.
    pairs, groups: all that will be used, in the same order on all ranks; see ``connections``.
    device: where received tensors are put; NCCL on "cuda", else gloo.
    timeout_s: of any single wait.
    """

    def __init__(
        self,
        store: Store,
        *,
        worker: int,
        num_workers: int,
        pairs: Sequence[tuple[int, int]],
        groups: Sequence[tuple[int, ...]] = (),
        device: torch.device | None = None,
        timeout_s: float = 1800.0,
    ) -> None:
        self.worker = worker
        self.num_workers = num_workers
        self._device = torch.device("cpu") if device is None else device
        self._is_gpu = self._device.type == "cuda"
        dist.init_process_group(
            "nccl" if self._is_gpu else "gloo",
            store=store,
            rank=worker,
            world_size=num_workers,
            timeout=timedelta(seconds=timeout_s),
            device_id=self._device if self._is_gpu else None,
        )
        world = dist.group.WORLD
        assert world is not None
        self._groups = {
            members: world if len(members) == num_workers else dist.new_group(list(members))
            for members in groups
        }
        self._timeout_s = timeout_s
        self._senders: dict[int, Sender] = {}
        self._receivers: dict[int, Receiver] = {}
        self._connect(store, pairs)

    def _connect(self, store: Store, pairs: Sequence[tuple[int, int]]) -> None:
        """Make this worker's ends of the pairs."""
        world = dist.group.WORLD
        assert world is not None
        for source, target in pairs:
            group, ranks = world, (source, target)
            if self._is_gpu:
                # On NCCL both directions of a pair would stand in one queue: each gets its own.
                group, ranks = dist.new_group([source, target]), (0, 1)
                if source > target:
                    ranks = (1, 0)
            shapes = Shapes(store, f"{source}>{target}")
            if self.worker == source:
                keeper = _PollingKeeper() if self._is_gpu else _WaitingKeeper()
                self._senders[target] = _GroupSender(shapes, group, ranks[1], keeper)
            if self.worker == target:
                self._receivers[source] = _GroupReceiver(shapes, group, ranks[0], self._device)

    def send(self, peer: int, key: Hashable, tensors: tuple[Tensor, ...]) -> None:
        self._senders[peer].send(key, tensors)

    def receive(self, peer: int, key: Hashable) -> Handle:
        return self._receivers[peer].receive(key)

    def all_reduce(
        self, members: tuple[int, ...], tensor: Tensor, *, maximum: bool = False
    ) -> Handle:
        if len(members) == 1:
            return Done(tensor)
        operation = dist.ReduceOp.MAX if maximum else dist.ReduceOp.SUM
        work = dist.all_reduce(tensor, operation, group=self._groups[members], async_op=True)
        assert work is not None
        return _Reduction(work, tensor)

    def broadcast(
        self, tensor: Tensor, source: int, members: tuple[int, ...] | None = None
    ) -> Handle:
        group = None if members is None else self._groups[members]
        work = dist.broadcast(tensor, source, group=group, async_op=True)
        assert work is not None
        return _Reduction(work, tensor)

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.num_workers
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        dist.barrier(device_ids=[self._device.index] if self._is_gpu else None)

    def flush(self) -> None:
        for sender in self._senders.values():
            sender.flush()

    def close(self) -> None:
        self.flush()
        for sender in self._senders.values():
            sender.close()
        self.barrier()
        dist.destroy_process_group()


@dataclass
class _Reduction:
    work: dist.Work
    tensor: Tensor

    def wait(self) -> tuple[Tensor, ...]:
        self.work.wait()
        return (self.tensor,)


class Sender(Protocol):
    """The source of a directed pair of workers."""

    def send(self, key: Hashable, tensors: tuple[Tensor, ...]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Receiver(Protocol):
    """The target of a directed pair of workers."""

    def receive(self, key: Hashable) -> Handle: ...


@dataclass
class Shapes:
    """What either end of a directed pair knows of its messages.

    layouts: by key, in the order in which keys came up.
    """

    store: Store
    channel: str
    layouts: dict[Hashable, Layout] = field(default_factory=dict)

    def of_sent(self, key: Hashable, tensors: tuple[Tensor, ...]) -> Layout:
        """The layout of a message, told to the target if its key is new."""
        layout = Layout.of(tensors)
        known = self.layouts.get(key)
        if known is None:
            self.store.set(self._next_name, pickle.dumps(layout.shapes).hex())
            self.layouts[key] = layout
            return layout
        if known != layout:
            raise shapes_changed(self.channel, key, known, layout)
        return known

    def learn(self, key: Hashable) -> None:
        """Wait until the source has told the layout of a new key."""
        text = self.store.get(self._next_name).decode()
        self.layouts[key] = Layout(pickle.loads(bytes.fromhex(text)))

    @property
    def _next_name(self) -> str:
        return f"shapes/{self.channel}/{len(self.layouts)}"


class _GroupSender:
    """Sends through a process group."""

    def __init__(
        self, shapes: Shapes, group: dist.ProcessGroup, target: int, keeper: "_Keeper"
    ) -> None:
        self._shapes = shapes
        self._group = group
        self._target = target
        self._keeper = keeper

    def send(self, key: Hashable, tensors: tuple[Tensor, ...]) -> None:
        for buffer in self._shapes.of_sent(key, tensors).pack(tensors):
            self._keeper.keep(self._group.send([buffer], self._target, 0), buffer)

    def flush(self) -> None:
        self._keeper.flush()

    def close(self) -> None:
        self._keeper.close()


class _GroupReceiver:
    """Receives through a process group."""

    def __init__(
        self, shapes: Shapes, group: dist.ProcessGroup, source: int, device: torch.device
    ) -> None:
        self._shapes = shapes
        self._group = group
        self._source = source
        self._device = device
        # Messages from the first one on whose shapes are not known yet: order must be kept.
        self._unposted: deque[_Message] = deque()

    def receive(self, key: Hashable) -> Handle:
        message = _Message(self, key)
        self._unposted.append(message)
        self._post()
        return message

    def _post(self) -> None:
        while self._unposted and self._unposted[0].key in self._shapes.layouts:
            message = self._unposted.popleft()
            message.layout = self._shapes.layouts[message.key]
            message.buffers = message.layout.empty(self._device)
            message.works = [
                self._group.recv([buffer], self._source, 0) for buffer in message.buffers
            ]

    def wait(self, message: "_Message") -> tuple[Tensor, ...]:
        while message.layout is None:
            self._shapes.learn(self._unposted[0].key)
            self._post()
        for work in message.works:
            work.wait()
        return message.layout.unpack(message.buffers, self._device)


@dataclass(eq=False)
class _Message:
    """A receive: posted at once, or as soon as its layout is known."""

    receiver: _GroupReceiver
    key: Hashable
    layout: Layout | None = None
    buffers: list[Tensor] = field(default_factory=list)
    works: list[dist.Work] = field(default_factory=list)

    def wait(self) -> tuple[Tensor, ...]:
        return self.receiver.wait(self)


class _Keeper(Protocol):
    """Keeps what is being sent until it has left."""

    def keep(self, work: dist.Work, buffer: Tensor) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _WaitingKeeper:
    """A gloo send cannot be asked whether it has ended, only waited for: a thread does that.

    It looks from time to time only, and only when much is kept: to be woken up for every message
    would slow down the main thread, with which it shares the interpreter, by more than the message
    itself does.
    """

    def __init__(self) -> None:
        self._sending: deque[tuple[dist.Work, Tensor]] = deque()
        self._kept_bytes = 0  # since somebody waited last; need not be exact
        self._is_much = threading.Event()
        self._lock = threading.Lock()  # held by the one who waits
        self._is_closed = False
        self._failure: RuntimeError | None = None
        self._thread = threading.Thread(target=self._look, name="sends", daemon=True)
        self._thread.start()

    def keep(self, work: dist.Work, buffer: Tensor) -> None:
        self._sending.append((work, buffer))
        self._kept_bytes += buffer.nbytes
        if self._kept_bytes > _MUCH_BYTES and not self._is_much.is_set():
            self._is_much.set()

    def _look(self) -> None:
        while not self._is_closed:
            self._is_much.wait()
            self._is_much.clear()
            time.sleep(_LOOK_EVERY_S)
            try:
                self._wait_for_all()
            except RuntimeError as error:
                self._failure = error

    def _wait_for_all(self) -> None:
        with self._lock:
            self._kept_bytes = 0
            while self._sending:
                self._sending[0][0].wait()
                self._sending.popleft()

    def flush(self) -> None:
        self._wait_for_all()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._is_closed = True
        self._is_much.set()
        self._thread.join()


class _PollingKeeper:
    """An NCCL send can be asked; waiting for it in a thread would hold up a stream."""

    def __init__(self) -> None:
        self._sending: deque[tuple[dist.Work, Tensor]] = deque()

    def keep(self, work: dist.Work, buffer: Tensor) -> None:
        while self._sending and self._sending[0][0].is_completed():
            self._sending.popleft()
        self._sending.append((work, buffer))

    def flush(self) -> None:
        while self._sending:
            self._sending.popleft()[0].wait()

    def close(self) -> None:
        assert not self._sending
