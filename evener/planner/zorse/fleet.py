"""What Zorse's cost formulas know: GPUs in machines, links between machines, times of one layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

_REFERENCE_BYTES = 10_000_000
"""Size of the message whose time a link's ``reference_ms`` is."""

_RING_LOSS = 1.15
"""What a ring takes beyond the sum of its steps (comm_model.py of the published code)."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. machine: the name of the one that it is in. type: key of the layer times."""

    machine: str
    type: str
    memory_bytes: int


@dataclass(frozen=True)
class MachineLink:
    """reference_ms: measured time of a message of 10 MB."""

    bytes_per_s: float
    reference_ms: float


@dataclass(frozen=True)
class LayerTime:
    """One layer and one microbatch, without recomputation."""

    forward_ms: float
    backward_ms: float

    @property
    def total_ms(self) -> float:
        return self.forward_ms + self.backward_ms


@dataclass(frozen=True)
class LayerFit:
    """Measured times for microbatches of 1, 2, ... sequences, and a line for larger ones.

    A line may fall below zero for small microbatches; no time does.
    """

    forward: tuple[float, float]
    backward: tuple[float, float]
    measured: tuple[LayerTime, ...] = ()

    def at(self, microbatch_size: int) -> LayerTime:
        if microbatch_size <= len(self.measured):
            return self.measured[microbatch_size - 1]
        (forward, forward_base), (backward, backward_base) = self.forward, self.backward
        return LayerTime(
            max(0.0, forward * microbatch_size + forward_base),
            max(0.0, backward * microbatch_size + backward_base),
        )


@dataclass(frozen=True)
class Transformer:
    """num_parameters: of one of the equal layers."""

    num_layers: int
    hidden_size: int
    num_parameters: int


@dataclass(frozen=True)
class Fleet:
    """GPUs, links between their machines, and what one layer takes on each type of GPU.

    links: by the names of two machines, in either order; a machine and itself for inside.
    """

    gpus: tuple[Gpu, ...]
    links: Mapping[tuple[str, str], MachineLink]
    layers: Mapping[str, LayerFit]

    def link(self, first: str, second: str) -> MachineLink:
        """Between two machines. Raises KeyError where none is given."""
        pair = (first, second)
        return self.links[pair] if pair in self.links else self.links[second, first]

    def ring_ms(self, members: tuple[int, ...], num_bytes: int) -> float:
        """All-gather or reduce-scatter of so many bytes over a ring in this order (section 4).

        Each of the n - 1 steps takes as long as its slowest link.
        """
        if len(members) == 1:
            return 0.0
        after = (*members[1:], members[0])
        slowest = min(
            self.link(self.gpus[a].machine, self.gpus[b].machine).bytes_per_s
            for a, b in zip(members, after, strict=True)
        )
        steps = len(members) - 1
        return _RING_LOSS * steps * (num_bytes / len(members)) / slowest * 1e3

    def message_ms(
        self, senders: tuple[int, ...], receivers: tuple[int, ...], num_bytes: int
    ) -> float:
        """One boundary activation between two groups.

        Up to 10 MB nearly all is latency; beyond, the slowest link between the groups counts.
        """
        links = self._between(senders, receivers)
        reference_ms = max(link.reference_ms for link in links)
        if num_bytes <= _REFERENCE_BYTES:
            return reference_ms * (0.8 + 0.2 * num_bytes / _REFERENCE_BYTES)
        slowest = min(link.bytes_per_s for link in links)
        return reference_ms + (num_bytes - _REFERENCE_BYTES) / slowest * 1e3

    def mean_bytes_per_s(self, senders: tuple[int, ...], receivers: tuple[int, ...]) -> float:
        """Between the machines of two groups."""
        links = self._between(senders, receivers)
        return sum(link.bytes_per_s for link in links) / len(links)

    def _between(self, senders: tuple[int, ...], receivers: tuple[int, ...]) -> list[MachineLink]:
        sources = dict.fromkeys(self.gpus[gpu].machine for gpu in senders)
        targets = dict.fromkeys(self.gpus[gpu].machine for gpu in receivers)
        return [self.link(source, target) for source, target in product(sources, targets)]
