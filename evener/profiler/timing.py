"""How long something takes on a device, and what many such times say together."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Protocol, TypeVar

import torch

from evener.errors import UsageError

Result = TypeVar("Result")


class Stopwatch(Protocol):
    """Times work on one device."""

    def time(self, work: Callable[[], Result]) -> tuple[Result, int]:
        """What ``work`` returns, and the nanoseconds until all that it started has ended."""
        ...


class CpuStopwatch:
    """Wall time: on a CPU everything has ended when ``work`` returns."""

    def time(self, work: Callable[[], Result]) -> tuple[Result, int]:
        start_ns = perf_counter_ns()
        result = work()
        return result, perf_counter_ns() - start_ns


class CudaStopwatch:
    """Time between two events of the device, which is idle before the first."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._start = torch.cuda.Event(enable_timing=True)
            self._end = torch.cuda.Event(enable_timing=True)

    def time(self, work: Callable[[], Result]) -> tuple[Result, int]:
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            self._start.record()
            result = work()
            self._end.record()
            self._end.synchronize()
        return result, round(self._start.elapsed_time(self._end) * 1_000_000)


def stopwatch(device: torch.device) -> Stopwatch:
    """What times work on ``device``. UsageError for types of device that are not known."""
    if device.type == "cpu":
        return CpuStopwatch()
    if device.type == "cuda":
        return CudaStopwatch(device)
    raise UsageError(f'cannot measure on a device of type "{device.type}"; use "cpu" or "cuda"')


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, compute with one thread, as workers that share a machine do."""
    num_threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def median_ns(samples: Sequence[int]) -> int:
    """The median, rounded to whole nanoseconds."""
    return round(median(samples))


def relative_spread(samples: Sequence[int]) -> float:
    """The interquartile range over the median; 0 of a single sample."""
    if len(samples) < 2 or median(samples) == 0:
        return 0.0
    first, middle, third = quantiles(samples, n=4, method="inclusive")
    return (third - first) / middle
