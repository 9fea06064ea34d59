"""The layers of a model as the executor takes them: by index, with global names.

A source is a ``ModelSpec`` (only the needed layers are built) or a user's own module that is a
sequence of blocks.  Names are the names that the parameters have in the whole model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from evener.errors import UsageError
from evener.modules.reference import build_layers, layer_name
from evener.spec.model import ModelSpec

ParameterPlace = tuple[int, str]
"""(layer, name of the parameter within the layer)."""


class LayerSource(Protocol):
    """Where the executor gets a model's layers from.

    names: per layer, the prefix of its parameters' global names, without a dot at the end.
    shared: groups of places that are one and the same parameter (tied weights).
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def shared(self) -> tuple[tuple[ParameterPlace, ...], ...]: ...

    def build(self, layers: Iterable[int]) -> dict[int, nn.Module]:
        """The modules of the given layers; parameters shared among them are one tensor."""
        ...


@dataclass(frozen=True)
class SpecLayers:
    """Reference layers of a description, drawn from (seed, name)."""

    model: ModelSpec
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(layer_name(index) for index in range(len(self.model.layers)))

    @property
    def shared(self) -> tuple[tuple[ParameterPlace, ...], ...]:
        if self.model.tied_layers is None:
            return ()
        first, last = self.model.tied_layers
        return (((first, "tokens.weight"), (last, "projection.weight")),)

    def build(self, layers: Iterable[int]) -> dict[int, nn.Module]:
        return build_layers(
            self.model, layers=layers, dtype=self.dtype, device=self.device, seed=self.seed
        )


class ModuleLayers:
    """The blocks of a user's module.

    blocks: an ``nn.Sequential`` or ``nn.ModuleList``, a mapping from global name to block, or a
        sequence of blocks (then named by their index).  Block i+1 is called with what block i
        returns, and with those entries of the batch that its ``forward`` names as parameters.
    """

    def __init__(self, blocks: nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module]) -> None:
        named = _named_blocks(blocks)
        self.names = tuple(named)
        self._blocks = tuple(named.values())
        self.shared = _shared_places(self._blocks)

    def build(self, layers: Iterable[int]) -> dict[int, nn.Module]:
        return {index: self._blocks[index] for index in sorted(set(layers))}


def layer_source(
    model: ModelSpec | LayerSource | nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> LayerSource:
    """The layers of whatever a user hands over. UsageError if it is not a sequence of blocks.

    dtype, device, seed: of a described model; a module keeps its own.
    """
    if isinstance(model, ModelSpec):
        return SpecLayers(model, dtype, device, seed)
    if isinstance(model, SpecLayers | ModuleLayers):
        return model
    return ModuleLayers(model)  # type: ignore[arg-type]


def _named_blocks(
    blocks: nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module],
) -> dict[str, nn.Module]:
    if isinstance(blocks, nn.Sequential | nn.ModuleList):
        return dict(blocks.named_children())
    if isinstance(blocks, nn.ModuleDict | Mapping):
        return dict(blocks.items())
    if isinstance(blocks, nn.Module) or not isinstance(blocks, Sequence):
        raise UsageError(_NOT_A_SEQUENCE, [_what_was_given(blocks)])
    return {str(index): block for index, block in enumerate(blocks)}


def _shared_places(blocks: Sequence[nn.Module]) -> tuple[tuple[ParameterPlace, ...], ...]:
    places: dict[int, list[ParameterPlace]] = {}
    for layer, block in enumerate(blocks):
        for name, parameter in block.named_parameters():
            places.setdefault(id(parameter), []).append((layer, name))
    return tuple(tuple(group) for group in places.values() if len(group) > 1)


_NOT_A_SEQUENCE = "the module is not a sequence of blocks"


def _what_was_given(given: object) -> str:
    return (
        f"got {type(given).__name__}; give its blocks in order as an nn.Sequential, a list, or a "
        'mapping from global name to block such as {"embed": ..., "layers.0": ...}'
    )
