"""From modules to a description: which blocks of a model are of one kind."""

import re
from collections.abc import Hashable
from itertools import chain, count

from torch import nn

from evener.modules.layers import LayerSource
from evener.spec.layers import LayerSpec, OpaqueSpec
from evener.spec.model import ModelSpec

# Names under which blocks commonly keep their own position, which changes no cost.
_POSITION = re.compile(r"idx|index|(layer|block)_?(idx|index|id|num|number)")


def describe(source: LayerSource, *, name: str, hidden_size: int = 1) -> ModelSpec:
    """A user's blocks as a model of opaque layers, for the planner.

    Blocks of one structure are of one kind, named after their class: same modules inside, same
    settings, same shapes and types of parameters.  The last block is a kind of its own, because it
    is measured with the loss.  hidden_size: for information only.
    """
    modules = source.build(range(len(source.names)))
    kinds: dict[Hashable, str] = {}
    configs: dict[str, LayerSpec] = {}
    pattern = []
    for index, module in modules.items():
        structure = (_structure(module), index == len(modules) - 1)
        if structure not in kinds:
            kinds[structure] = _new_name(module, configs)
            num_parameters = sum(parameter.numel() for parameter in module.parameters())
            configs[kinds[structure]] = OpaqueSpec(num_parameters=num_parameters)
        pattern.append(kinds[structure])
    return ModelSpec(
        name=name, hidden_size=hidden_size, layer_configs=configs, pattern=" ".join(pattern)
    )


def _new_name(module: nn.Module, taken: dict[str, LayerSpec]) -> str:
    wanted = re.sub("[^A-Za-z0-9]+", "_", type(module).__name__).strip("_") or "Block"
    numbered = (f"{wanted}_{number}" for number in count(2))
    return next(name for name in chain([wanted], numbered) if name not in taken)


def _structure(module: nn.Module) -> Hashable:
    """Equal for two modules that cost the same, as far as can be seen from outside."""
    parts = tuple((name, type(part), _settings(part)) for name, part in module.named_modules())
    tensors = tuple(
        (name, tensor.shape, tensor.dtype, tensor.requires_grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    )
    return parts, tensors


def _settings(part: nn.Module) -> Hashable:
    plain = tuple(
        (name, value)
        for name, value in vars(part).items()
        if not name.startswith("_")
        and not _POSITION.fullmatch(name)
        and isinstance(value, bool | int | float | str)
    )
    return part.extra_repr(), plain
