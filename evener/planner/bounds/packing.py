"""Layers are whole: no worker holds half of one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from evener.planner.bounds.fill import fill_ns
from evener.planner.bounds.instance import Instance
from evener.planner.bounds.load import load_ns

_MOST_STATES = 2048
_PARTS = 1 << 20  # how exactly the bound is found, in parts of itself; smaller ones are exact
_NEVER = -(1 << 40)


def packing_ns(instance: Instance) -> int:
    """The shortest step for which the layers can be dealt out to the workers at all.

    A worker has the step less the way to its first layer and, as far as all work that may wait
    does not fill it, the way back.  Nothing more than the load is proven where a layer has copies.
    """
    least_ns = max(load_ns(instance), fill_ns(instance))
    if instance.stage_copies > 1:
        return least_ns
    packing = _Packing(instance)
    if packing.is_possible(least_ns):
        return least_ns
    exact_ns = max(1, least_ns // _PARTS)
    impossible_ns, possible_ns, step_ns = least_ns, least_ns + exact_ns, exact_ns
    while not packing.is_possible(possible_ns):
        step_ns *= 2
        impossible_ns, possible_ns = possible_ns, possible_ns + step_ns
    while possible_ns - impossible_ns > exact_ns:
        middle_ns = (impossible_ns + possible_ns) // 2
        if packing.is_possible(middle_ns):
            possible_ns = middle_ns
        else:
            impossible_ns = middle_ns
    return impossible_ns + 1


class _Packing:
    """Which steps leave room for all layers; exact where there are few kinds of layers.

    A layer counts by its work alone.  The kind of which there are most is not enumerated: for
    every selection of the others, the most layers of it that fit beside them are kept.
    """

    def __init__(self, instance: Instance) -> None:
        chain, self._num_microbatches = instance.chain, instance.num_microbatches
        rest_ns = int((chain.work_ns - chain.forward_ns - chain.input_ns).sum())
        draining_ns = instance.arrival_ns(chain.input_ns) - rest_ns * self._num_microbatches
        self._lost_ns = instance.arrival_ns(chain.forward_ns) + np.maximum(0, draining_ns)
        self._first_ns = int(chain.work_ns[0])
        kinds = _few_kinds(Counter(int(work_ns) for work_ns in chain.work_ns[1:] if work_ns > 0))
        self._main_ns, self._num_main = kinds.pop() if kinds else (1, 0)
        self._sizes_ns = [size_ns for size_ns, _ in kinds]
        self._counts = [count for _, count in kinds]

    def is_possible(self, step_ns: int) -> bool:
        """Whether the layers fit, each whole, into what the step leaves every worker."""
        rooms_ns = [int(room) for room in (step_ns - self._lost_ns) // self._num_microbatches]
        rooms_ns[0] -= self._first_ns  # the first layer is on the worker that starts first
        if min(rooms_ns) < 0:
            return False
        most = np.full((*(count + 1 for count in self._counts), 1), _NEVER, dtype=np.int64)
        most[(0,) * most.ndim] = 0
        for room_ns in rooms_ns:
            most = self._with_worker(most, room_ns)
        return bool(most[(-1,) * most.ndim] >= self._num_main)

    def _with_worker(self, most: NDArray[np.int64], room_ns: int) -> NDArray[np.int64]:
        better = np.full_like(most, _NEVER)
        for chosen, left_ns in _selections(self._sizes_ns, self._counts, room_ns):
            source = tuple(slice(size - n) for size, n in zip(most.shape, chosen, strict=False))
            target = tuple(slice(n, None) for n in chosen)
            np.maximum(better[target], most[source] + left_ns // self._main_ns, out=better[target])
        return better


def _selections(
    sizes_ns: Sequence[int], counts: Sequence[int], room_ns: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """How many of each kind fit together, and the room that they leave."""
    if not sizes_ns:
        yield (), room_ns
        return
    for number in range(min(counts[0], room_ns // sizes_ns[0]) + 1):
        for others, left_ns in _selections(
            sizes_ns[1:], counts[1:], room_ns - number * sizes_ns[0]
        ):
            yield (number, *others), left_ns


def _few_kinds(count_of: Counter[int]) -> list[tuple[int, int]]:
    """(work, number of layers) of so few kinds that all selections can be looked at.

    The most frequent one is last.  Two kinds become one at the cost of the smaller, which keeps the
    bound valid; first those where this loses least work.
    """
    kinds = sorted(count_of.items())
    while kinds and prod(n + 1 for _, n in kinds) // (max(n for _, n in kinds) + 1) > _MOST_STATES:
        losses = [(kinds[i + 1][0] - kinds[i][0]) * kinds[i + 1][1] for i in range(len(kinds) - 1)]
        i = losses.index(min(losses))
        kinds[i : i + 2] = [(kinds[i][0], kinds[i][1] + kinds[i + 1][1])]
    return sorted(kinds, key=lambda kind: kind[1])
