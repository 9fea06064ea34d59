"""Random numbers keyed by (seed, step, layer, microbatch).

Before a layer runs for a microbatch, torch's generators are seeded by the key.  So dropout draws
the same numbers under every plan, in a single process, and again when a forward is recomputed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

_MASK = (1 << 64) - 1


def key(seed: int, step: int, layer: int, microbatch: int) -> int:
    """A 63-bit key: equal for equal arguments, in every process and on every machine.

    seed: of the job. step: number of the training call. layer: index in the whole model.
    microbatch: index within the step.
    """
    return _splitmix64(_mixed(seed, step, layer) ^ microbatch) >> 1


@lru_cache(maxsize=1024)  # a step asks for each of its layers once per microbatch
def _mixed(seed: int, step: int, layer: int) -> int:
    mixed = 0
    for part in (seed, step, layer):
        mixed = _splitmix64(mixed ^ (part & _MASK))
    return mixed


def _splitmix64(state: int) -> int:
    """The finaliser of Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators"."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


class KeyedGenerators:
    """Seeds torch's own generators of one device (and the CPU's), since modules draw from them."""

    def __init__(self, device: torch.device) -> None:
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            torch.cuda.init()
            index = torch.cuda.current_device() if device.index is None else device.index
            self._generators.append(torch.cuda.default_generators[index])

    def seed(self, value: int) -> None:
        """Seed all of them with ``value`` (see ``key``)."""
        for generator in self._generators:
            generator.manual_seed(value)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Give the caller's random state back at the end: a step must not change it."""
        states = [generator.get_state() for generator in self._generators]
        try:
            yield
        finally:
            for generator, state in zip(self._generators, states, strict=True):
                generator.set_state(state)
