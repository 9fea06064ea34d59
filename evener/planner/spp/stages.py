"""Stages and their replicas along an order of devices, by dynamic programming."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evener.planner.partition.contiguous import Partition

Loads = NDArray[np.float64]

StageLoad: TypeAlias = Callable[[int, int], Loads]
"""(first device, end) -> [first layer, end], time of a stage on these devices in a whole step."""

ChannelLoad: TypeAlias = Callable[[int, int, int], Loads]
"""(first device, border, end) -> [cut], time of the busiest link between the two groups."""


@dataclass(frozen=True)
class Chain:
    """A chain of layers and devices in an order.

    load, channel: what devices and links do in a step; infinite where it is not possible.
    most_replicas: of one stage.
    """

    num_layers: int
    num_devices: int
    most_replicas: int
    load: StageLoad
    channel: ChannelLoad


class Division(NamedTuple):
    """Stages with how many devices each has, in order; load_ns: of the busiest device or link."""

    load_ns: float
    partition: Partition
    num_replicas: tuple[int, ...]


class _Best(NamedTuple):
    """Per number of layers: the least largest load, the layers and replicas of the stage before."""

    load_ns: Loads
    cut: NDArray[np.int64]
    replicas: NDArray[np.int64]


def divisions(chain: Chain) -> list[Division]:
    """For each possible number of stages that use all devices, the one with the least largest load.

    O(devices^4 layers^2): stages, devices so far, and the replicas of two neighbour stages.
    """
    best: dict[tuple[int, int, int], _Best] = {}  # by stages, devices so far, replicas of the last
    most_stages = min(chain.num_layers, chain.num_devices)
    for num_stages in range(1, most_stages + 1):
        for used in range(num_stages, chain.num_devices + 1):
            for replicas in range(1, min(chain.most_replicas, used - num_stages + 1) + 1):
                found = _extended(chain, best, (num_stages, used, replicas))
                best[num_stages, used, replicas] = found
    return [
        _walked(chain, best, num_stages, min(ends, key=lambda end: best[end].load_ns[-1]))
        for num_stages in range(1, most_stages + 1)
        if (ends := _finite(best, num_stages, chain.num_devices))
    ]


def _finite(
    best: dict[tuple[int, int, int], _Best], num_stages: int, used: int
) -> list[tuple[int, int, int]]:
    return [
        key
        for key, found in best.items()
        if key[:2] == (num_stages, used) and found.load_ns[-1] < inf
    ]


def _extended(
    chain: Chain, best: dict[tuple[int, int, int], _Best], key: tuple[int, int, int]
) -> _Best:
    """One more stage behind each division with one stage and ``replicas`` devices less."""
    num_stages, used, replicas = key
    border, num_cuts = used - replicas, chain.num_layers + 1
    load = chain.load(border, used)
    if num_stages == 1:
        nothing = np.zeros(num_cuts, dtype=np.int64)
        load_ns = load[0] if border == 0 else np.full(num_cuts, inf)
        return _Best(load_ns, nothing, nothing)
    found = _Best(
        np.full(num_cuts, inf), np.zeros(num_cuts, np.int64), np.zeros(num_cuts, np.int64)
    )
    for before in range(1, border + 1):
        shorter = best.get((num_stages - 1, border, before))
        if shorter is None:
            continue
        channel = chain.channel(border - before, border, used)
        totals = np.maximum(np.maximum(shorter.load_ns, channel)[:, None], load)
        cut = totals.argmin(axis=0)
        load_ns = totals[cut, np.arange(num_cuts)]
        better = load_ns < found.load_ns
        found = _Best(
            np.where(better, load_ns, found.load_ns),
            np.where(better, cut, found.cut),
            np.where(better, before, found.replicas),
        )
    return found


def _walked(
    chain: Chain,
    best: dict[tuple[int, int, int], _Best],
    num_stages: int,
    key: tuple[int, int, int],
) -> Division:
    load_ns = float(best[key].load_ns[-1])
    end, stages, replicas = chain.num_layers, [], []
    for _ in range(num_stages):
        found = best[key]
        stages.append((int(found.cut[end]), end))
        replicas.append(key[2])
        key = (key[0] - 1, key[1] - key[2], int(found.replicas[end]))
        end = stages[-1][0]
    return Division(load_ns, tuple(reversed(stages)), tuple(reversed(replicas)))
