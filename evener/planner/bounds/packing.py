"""Layers are whole: no worker holds half of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Self

import numpy as np

from evener.planner.bounds.fill import fill_ns
from evener.planner.bounds.heavy_layer import Window, heaviest, heavy_layer_ns
from evener.planner.bounds.instance import Instance, Times
from evener.planner.bounds.load import load_ns

_MOST_STATES = 2048
_PARTS = 1 << 20  # how exactly the bound is found, in parts of itself; smaller ones are exact
_NEVER = -(1 << 40)


def packing_ns(instance: Instance) -> int:
    """The shortest step for which the layers can be dealt out to the workers at all.

    A worker has the step less the way to its first layer and, as far as all work that may wait
    does not fill it, the way back.  The worker of the heaviest layer also waits for that layer, and
    for its last gradient to go back, unless it has other work for then.  Nothing more than other
    bounds is proven where a layer has copies.
    """
    least_ns = max(load_ns(instance), fill_ns(instance))
    if instance.stage_copies > 1:
        return least_ns
    least_ns = max(least_ns, heavy_layer_ns(instance))
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


@dataclass(frozen=True)
class _Kind:
    """Layers that count alike: each no more, and no less idle time, than it is.

    work_ns: of one microbatch. parts_ns: the same as F, I and W take at least. early_ns, late_ns:
    what can be done of it before the heaviest layer is reached, and after its last gradient.
    """

    count: int
    work_ns: int
    parts_ns: int
    early_ns: int
    late_ns: int

    def with_all_of(self, other: Self) -> Self:
        """Both as one, at what is least for either."""
        return type(self)(
            self.count + other.count,
            min(self.work_ns, other.work_ns),
            min(self.parts_ns, other.parts_ns),
            max(self.early_ns, other.early_ns),
            max(self.late_ns, other.late_ns),
        )


class _Packing:
    """Which steps leave room for all layers; exact where there are few kinds of layers.

    The kind of which there are most is not enumerated: for every selection of the others, the most
    layers of it that fit beside them are kept.
    """

    def __init__(self, instance: Instance) -> None:
        chain, self._num_microbatches = instance.chain, instance.num_microbatches
        rest_ns = int((chain.work_ns - chain.forward_ns - chain.input_ns).sum())
        self._arrival_ns = instance.arrival_ns(chain.forward_ns)
        draining_ns = instance.arrival_ns(chain.input_ns) - rest_ns * self._num_microbatches
        self._drain_ns = np.maximum(0, draining_ns)
        self._window = heaviest(instance)
        layers = _layers(instance, self._window)
        self._first, self._heaviest = layers[0], layers[self._window.layer]
        others = {0, self._window.layer}
        kinds = _few_kinds([own for layer, own in enumerate(layers) if layer not in others])
        self._main = kinds.pop() if kinds else _Kind(0, 1, 1, 0, 0)
        self._shape = (*(kind.count + 1 for kind in kinds), 1)
        # Per selection of the other kinds: work_ns, parts_ns, early_ns, late_ns.
        self._chosen = np.zeros((4, *self._shape), dtype=np.int64)
        for axis, kind in enumerate(kinds):
            along = np.arange(kind.count + 1).reshape(-1, *[1] * (len(kinds) - axis))
            for row, own_ns in zip(self._chosen, _columns(kind), strict=True):
                row += along * own_ns

    def is_possible(self, step_ns: int) -> bool:
        """Whether the layers fit, each whole, into what the step leaves every worker."""
        alone = self._window.layer == 0  # then nobody waits for it
        without = np.full(self._shape, _NEVER, dtype=np.int64)
        without[(0,) * without.ndim] = 0
        held = without if alone else np.full_like(without, _NEVER)
        for worker in range(len(self._arrival_ns)):
            beside = self._beside(worker, step_ns)
            if not alone:
                holder = _with_worker(without, self._beside_heaviest(worker, step_ns))
                held = np.maximum(_with_worker(held, beside), holder)
            without = _with_worker(without, beside)
        found = without if alone else held
        return bool(found[(-1,) * found.ndim] >= self._main.count)

    def _beside(self, worker: int, step_ns: int) -> Times:
        """Per selection, the most layers of the main kind that a worker can have beside it."""
        lost_ns = int(self._arrival_ns[worker] + self._drain_ns[worker])
        room_ns = (step_ns - lost_ns) // self._num_microbatches
        if worker == 0:  # the first layer is on the worker that starts first
            room_ns -= self._first.work_ns
        most: Times = np.maximum((room_ns - self._chosen[0]) // self._main.work_ns, -1)
        return most

    def _beside_heaviest(self, worker: int, step_ns: int) -> Times:
        """The same for the worker of the heaviest layer.

        Its work, the longer of two waits before, and the longer of two after make up the step: four
        sums that are each linear in the number that is looked for.
        """
        m, main = self._num_microbatches, self._main
        work_ns, early_ns, late_ns = m * self._chosen[1:]
        work_ns += m * self._heaviest.parts_ns
        late_ns += m * self._heaviest.late_ns
        if worker == 0:
            work_ns += m * self._first.parts_ns
            early_ns += m * self._first.early_ns
            late_ns += m * self._first.late_ns
        before = [
            (int(self._arrival_ns[worker]), 0),
            (self._window.there_ns - early_ns, m * main.early_ns),
        ]
        after = [
            (int(self._drain_ns[worker]), 0),
            (self._window.back_ns - late_ns, m * main.late_ns),
        ]
        most = np.full(self._shape, main.count, dtype=np.int64)
        least = np.zeros(self._shape, dtype=np.int64)
        for wait_ns, less_ns in before:
            for drain_ns, less_late_ns in after:
                left_ns = step_ns - work_ns - wait_ns - drain_ns
                each_ns = m * main.parts_ns - less_ns - less_late_ns
                if each_ns > 0:
                    most = np.minimum(most, left_ns // each_ns)
                elif each_ns < 0:  # more of them need less, as far as these two waits go
                    least = np.maximum(least, -(left_ns // -each_ns))
                else:
                    most = np.where(left_ns >= 0, most, -1)
        return np.where(most >= least, most, -1)


def _with_worker(most: Times, beside: Times) -> Times:
    """Of the main kind, per selection that is dealt out to one worker more."""
    better = np.full_like(most, _NEVER)
    for chosen in np.argwhere(beside >= 0).tolist():
        source = tuple(slice(size - n) for size, n in zip(most.shape, chosen, strict=True))
        target = tuple(slice(n, None) for n in chosen)
        own = beside[tuple(chosen)]
        np.maximum(better[target], most[source] + own, out=better[target])
    return better


def _columns(kind: _Kind) -> tuple[int, int, int, int]:
    return kind.work_ns, kind.parts_ns, kind.early_ns, kind.late_ns


def _layers(instance: Instance, window: Window) -> list[_Kind]:
    """Every layer as a kind of its own."""
    chain = instance.chain
    before = np.arange(instance.num_layers) < window.layer
    early_ns = np.where(before, chain.forward_ns, 0)
    late_ns = np.where(before, chain.input_ns, 0) + chain.rest_ns
    parts_ns = chain.forward_ns + chain.input_ns + chain.rest_ns
    columns = (chain.work_ns.tolist(), parts_ns.tolist(), early_ns.tolist(), late_ns.tolist())
    return [_Kind(1, *own_ns) for own_ns in zip(*columns, strict=True)]


def _few_kinds(layers: Sequence[_Kind]) -> list[_Kind]:
    """So few kinds that all selections can be looked at; the most frequent one is last.

    A layer counts by its work alone.  Two kinds become one at the cost of the smaller, which keeps
    the bound valid; first those where this loses least work.
    """
    kinds: list[_Kind] = []
    for layer in sorted(layers, key=lambda layer: layer.work_ns):
        if kinds and kinds[-1].work_ns == layer.work_ns:
            kinds[-1] = kinds[-1].with_all_of(layer)
        elif layer.work_ns > 0:
            kinds.append(layer)
    while kinds and prod(k.count + 1 for k in kinds) // (max(k.count for k in kinds) + 1) > (
        _MOST_STATES
    ):
        losses = [
            (larger.work_ns - smaller.work_ns) * larger.count for smaller, larger in pairwise(kinds)
        ]
        i = losses.index(min(losses))
        kinds[i : i + 2] = [kinds[i].with_all_of(kinds[i + 1])]
    return sorted(kinds, key=lambda kind: kind.count)
