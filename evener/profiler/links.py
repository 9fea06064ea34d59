"""Latency and bandwidth between workers, measured with the very messages of the executor."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from statistics import median
from time import perf_counter_ns

import numpy as np
import torch
from torch import Tensor

from evener.cost.profile import LinkCost
from evener.errors import UsageError
from evener.profiler.options import Progress
from evener.profiler.peers import Messenger
from evener.profiler.timing import median_ns
from evener.spec.cluster import Link

SIZES_BYTES = tuple(1024 * 4**power for power in range(8))
"""1 KiB to 16 MiB."""

_WARM_UP = 2
_ROUNDS = _WARM_UP + 20
_ANSWER = "answer"


def measure_links(
    messenger: Messenger,
    devices: Sequence[str],
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    device: torch.device | None = None,
    progress: Progress = lambda done, total: None,
) -> tuple[LinkCost, ...]:
    """Both directions of each pair of workers; all workers call this and get the same links.

    messenger: of this worker, with connections both ways between the workers of each pair.
    devices: per worker, the name of its device. pairs: of workers, all by default; one at a time.
    device: where messages come from and go to, the CPU by default.

    A message is answered by a single byte as soon as it is there.  Of the time that takes no byte
    of the message, the way there is counted as half: latency cannot be told apart by direction.

    Raises UsageError if devices or pairs do not fit the workers.
    """
    chosen = list(combinations(range(messenger.num_workers), 2)) if pairs is None else list(pairs)
    _require(messenger, devices, chosen)
    messages = [torch.zeros(size, dtype=torch.uint8, device=device) for size in sizes_bytes]
    found: dict[tuple[int, int], Link] = {}
    for number, (first, second) in enumerate(chosen):
        for source, target in ((first, second), (second, first)):
            link = _measure(messenger, source, target, messages)
            if link is not None:
                found[source, target] = link
        progress(number + 1, len(chosen))
    everywhere = {key: link for part in messenger.gather(found) for key, link in part.items()}
    return tuple(
        LinkCost(
            from_device=devices[source],
            to_device=devices[target],
            latency_ns=link.latency_ns,
            bytes_per_s=link.bytes_per_s,
        )
        for (source, target), link in everywhere.items()
    )


def typical_links(links: Sequence[LinkCost], type_of: Mapping[str, str]) -> tuple[LinkCost, ...]:
    """One link per pair of device types, the median of those that were measured between them.

    For workers that are alike, such as processes on one machine.  type_of: by device.
    """
    between: dict[tuple[str, str], list[LinkCost]] = {}
    for link in links:
        types = (type_of[link.from_device], type_of[link.to_device])
        between.setdefault(types, []).append(link)
    return tuple(
        LinkCost(
            from_device=source,
            to_device=target,
            latency_ns=median_ns([link.latency_ns for link in group]),
            bytes_per_s=median_ns([link.bytes_per_s for link in group]),
        )
        for (source, target), group in between.items()
    )


def fit_link(sizes_bytes: Sequence[int], round_trip_ns: Sequence[float]) -> Link:
    """The link whose messages, answered by an empty one, take closest to these times.

    Time = 2 * latency + size / bandwidth, fitted by least squares of the relative errors, so that
    small messages count as much as large ones.  Neither is ever negative; where times do not grow
    with size, bandwidth is 0, which means no limit.
    """
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(round_trip_ns, float)
    rows = np.stack((np.ones_like(sizes), sizes), axis=1) / times[:, None]
    (fixed_ns, ns_per_byte), *_ = np.linalg.lstsq(rows, np.ones_like(times))
    if ns_per_byte <= 0:
        return Link(round(float(np.median(times)) / 2), 0)
    if fixed_ns < 0:
        fixed_ns, ns_per_byte = 0.0, 1 / np.average(sizes / times, weights=sizes / times)
    return Link(round(float(fixed_ns) / 2), round(1e9 / float(ns_per_byte)))


def _measure(
    messenger: Messenger, source: int, target: int, messages: Sequence[Tensor]
) -> Link | None:
    """One direction; the link is known at the source, the others wait."""
    messenger.gather(None)
    if messenger.worker == target:
        _answer(messenger, source, list(messages) * _ROUNDS)
    samples: list[list[int]] = [[] for _ in messages]
    if messenger.worker == source:
        # All sizes in turn, so that a drift of the machine meets all of them alike.
        for _, (own, message) in product(range(_ROUNDS), zip(samples, messages, strict=True)):
            own.append(_ask(messenger, target, message))
    messenger.flush()
    if messenger.worker != source:
        return None
    sizes_bytes = [message.numel() for message in messages]
    return fit_link(sizes_bytes, [median(own[_WARM_UP:]) for own in samples])


def _ask(messenger: Messenger, target: int, message: Tensor) -> int:
    """Nanoseconds until ``message`` has been answered."""
    answer = messenger.receive(target, _ANSWER)
    start_ns = perf_counter_ns()
    messenger.send(target, message.numel(), (message,))
    answer.wait()
    _synchronize(message.device)
    return perf_counter_ns() - start_ns


def _answer(messenger: Messenger, source: int, messages: Sequence[Tensor]) -> None:
    """Answer messages of these sizes. Each is asked for before the one before is answered."""
    arrivals = (messenger.receive(source, message.numel()) for message in messages)
    arrival = next(arrivals, None)
    while arrival is not None:
        arrival.wait()
        _synchronize(messages[0].device)
        arrival = next(arrivals, None)
        messenger.send(source, _ANSWER, (messages[0][:1],))


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _require(
    messenger: Messenger, devices: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> None:
    wrong = []
    if len(devices) != messenger.num_workers:
        wrong.append(
            f"{len(devices)} devices are named, but there are {messenger.num_workers} workers; "
            "name one device for each"
        )
    wrong += [
        f"workers {first} and {second} are not two of the {messenger.num_workers} workers"
        for first, second in pairs
        if first == second or not {first, second} <= set(range(messenger.num_workers))
    ]
    if wrong:
        raise UsageError("these links cannot be measured", wrong)
