"""Copies between a device and the memory of its host, beside the computation."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor

from evener.executor.transport import FutureHandle, Handle


class HostCopies(Protocol):
    """Starts copies; those of one direction run one after another."""

    def out(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], Handle]:
        """Host tensors that have the values of ``sources`` once the handle was waited for."""
        ...

    def back(self, hosts: Sequence[Tensor]) -> tuple[list[Tensor], Handle]:
        """New device tensors that have the values of ``hosts`` once the handle was waited for."""
        ...


def host_copies(device: torch.device) -> HostCopies:
    """What suits the device."""
    return StreamCopies(device) if device.type == "cuda" else ThreadCopies()


class ThreadCopies:
    """For CPUs: a thread for each direction copies from memory to memory."""

    def __init__(self) -> None:
        self._out = ThreadPoolExecutor(max_workers=1, thread_name_prefix="offload")
        self._back = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reload")

    def out(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], Handle]:
        return self._start(self._out, sources)

    def back(self, hosts: Sequence[Tensor]) -> tuple[list[Tensor], Handle]:
        return self._start(self._back, hosts)

    def _start(
        self, thread: ThreadPoolExecutor, sources: Sequence[Tensor]
    ) -> tuple[list[Tensor], Handle]:
        targets = [torch.empty_like(source) for source in sources]
        pairs = list(zip(targets, sources, strict=True))
        return targets, FutureHandle(thread.submit(_copy_and_forget, pairs))


class StreamCopies:
    """For CUDA: a stream for each direction, pinned memory at the host.

    Each copy begins when the computation that was issued before it has ended, and waiting for it
    makes the compute stream wait, not the host.  Device memory is allocated and freed on the
    compute stream, after that has waited for its copy; so no other use of it can come in between,
    and ``record_stream``, which would delay its reuse, is not needed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._out, self._back = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def out(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], Handle]:
        hosts = [torch.empty_like(x, device="cpu", pin_memory=True) for x in sources]
        return hosts, self._start(self._out, zip(hosts, sources, strict=True))

    def back(self, hosts: Sequence[Tensor]) -> tuple[list[Tensor], Handle]:
        targets = [torch.empty_like(host, device=self._device) for host in hosts]
        return targets, self._start(self._back, zip(targets, hosts, strict=True))

    def _start(self, stream: torch.cuda.Stream, pairs: Iterable[tuple[Tensor, Tensor]]) -> Handle:
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            _copy(pairs)
        return _EventHandle(stream.record_event(), self._device)


class _EventHandle:
    def __init__(self, event: torch.cuda.Event, device: torch.device) -> None:
        self._event, self._device = event, device

    def wait(self) -> tuple[()]:
        torch.cuda.current_stream(self._device).wait_event(self._event)
        return ()


def _copy(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    for target, source in pairs:
        target.copy_(source, non_blocking=True)


def _copy_and_forget(pairs: list[tuple[Tensor, Tensor]]) -> tuple[()]:
    _copy(pairs)
    # The thread lets go of its arguments only some time after it has said that it is done.
    pairs.clear()
    return ()
