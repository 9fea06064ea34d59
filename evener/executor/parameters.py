"""Whose parameter is what: global names, tied weights, and which worker counts which."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor, nn

from evener.errors import UsageError
from evener.modules.layers import LayerSource, ParameterPlace

Partition = Sequence[tuple[int, int]]
"""Per stage, its layers as a half-open range."""


@dataclass(frozen=True)
class TiedStages:
    """Parameters that two stages share.

    pair: (s, t), s < t. names: global names of the shared parameters, those that they have in s.
    """

    pair: tuple[int, int]
    names: tuple[str, ...]


class ParameterNames:
    """Global names of a model's parameters.

    A parameter that stands in several places has the name of the first.

    Raises UsageError if parameters are shared between stages that ``tied`` does not list (or by
    more than two), and if ``tied`` lists stages that share nothing.
    """

    def __init__(
        self, source: LayerSource, partition: Partition, tied: Sequence[tuple[int, int]]
    ) -> None:
        self._source = source
        self._first_place = {
            place: min(group) for group in source.shared for place in group if len(group) > 1
        }
        stage_of = {
            layer: stage
            for stage, (first, end) in enumerate(partition)
            for layer in range(first, end)
        }
        spread = _spread(source, stage_of)
        _require_listed(source, spread, tied)
        self.tied = tuple(
            TiedStages(pair, tuple(self._full(place) for place, p in spread if p == pair))
            for pair in sorted(set(tied))
        )

    def of_layer(self, layer: int, module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
        """The trainable parameters of one layer with their global names."""
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                place = (layer, name)
                yield self._full(self._first_place.get(place, place)), parameter

    def of_layers(self, layers: Mapping[int, nn.Module]) -> dict[str, nn.Parameter]:
        """The trainable parameters of several layers, each once."""
        return {
            name: parameter
            for layer, module in layers.items()
            for name, parameter in self.of_layer(layer, module)
        }

    def rest_of_layers(self, layers: Mapping[int, nn.Module]) -> dict[str, Tensor]:
        """What else of several layers a checkpoint holds: frozen parameters and buffers."""
        return {
            self._full(self._first_place.get((layer, name), (layer, name))): value
            for layer, module in layers.items()
            for name, value in module.state_dict(keep_vars=True).items()
            if isinstance(value, Tensor) and not value.requires_grad
        }

    def _full(self, place: ParameterPlace) -> str:
        layer, name = place
        return f"{self._source.names[layer]}.{name}"


def _spread(
    source: LayerSource, stage_of: Mapping[int, int]
) -> list[tuple[ParameterPlace, tuple[int, ...]]]:
    """Shared parameters (their first place) and the stages they stand in, if these are several."""
    found = []
    for group in source.shared:
        stages = tuple(sorted({stage_of[layer] for layer, _ in group}))
        if len(stages) > 1:
            found.append((min(group), stages))
    return found


def _require_listed(
    source: LayerSource,
    spread: Iterable[tuple[ParameterPlace, tuple[int, ...]]],
    tied: Sequence[tuple[int, int]],
) -> None:
    wrong = []
    for (layer, name), stages in spread:
        full = f"{source.names[layer]}.{name}"
        if len(stages) > 2:
            wrong.append(_shared_by_many(full, stages))
        elif stages not in tied:
            wrong.append(_not_listed(full, stages))
    shared = {stages for _, stages in spread}
    wrong += [_nothing_shared(pair) for pair in tied if tuple(pair) not in shared]
    if wrong:
        raise UsageError("the plan and the model disagree about shared parameters", wrong)


def _shared_by_many(name: str, stages: Sequence[int]) -> str:
    return (
        f"{name} is shared by stages {', '.join(map(str, stages))}; at most two stages can share "
        "a parameter: choose a partition that puts some of these layers together"
    )


def _not_listed(name: str, stages: Sequence[int]) -> str:
    s, t = stages
    return (
        f"{name} is shared by stages {s} and {t}, which the plan does not list as tied; add "
        f"[{s}, {t}] to the plan's `tied`"
    )


def _nothing_shared(pair: tuple[int, int]) -> str:
    return (
        f"the plan lists stages {pair[0]} and {pair[1]} as tied, but in the model they share no "
        "parameter; tie the weights before the layers are handed over, or plan without"
    )


@dataclass(frozen=True)
class Described:
    """What a worker tells the others about one of its tensors; digest: of its bytes.

    learns: whether it is trained.
    """

    shape: tuple[int, ...]
    dtype: str
    digest: bytes
    learns: bool

    @classmethod
    def of(cls, tensor: Tensor) -> "Described":
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest = blake2b(flat.view(torch.uint8).numpy().data, digest_size=16).digest()
        return cls(tuple(tensor.shape), str(tensor.dtype), digest, tensor.requires_grad)


def owners(holdings: Sequence[Mapping[str, Described]]) -> dict[str, int]:
    """Per parameter, the lowest worker that holds it, in an order that all workers agree on.

    holdings: per worker, its parameters (and what else must be equal) by name.

    Raises UsageError if workers that hold the same one hold different bytes.
    """
    owner: dict[str, int] = {}
    wrong = []
    for worker, held in enumerate(holdings):
        for name, described in held.items():
            first = owner.setdefault(name, worker)
            if holdings[first][name] != described:
                wrong.append(_different_start(name, first, worker))
    if wrong:
        raise UsageError("the workers do not start from the same model", wrong)
    return owner


def _different_start(name: str, first: int, second: int) -> str:
    return (
        f"{name} differs between workers {first} and {second}; build the model from the same seed "
        "or checkpoint on every rank"
    )
