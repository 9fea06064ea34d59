"""The model: an ordered sequence of layers of known kinds and shapes.

In a file each ``[layer.NAME]`` describes one layer configuration, and ``pattern`` gives the order
(see `evener.spec.pattern`)::

    name = "small"
    hidden_size = 512
    vocabulary_size = 32_000
    pattern = "embedding 6 x (attention mlp) head"

    [layer.embedding]
    kind = "embedding"

    [layer.attention]
    kind = "attention"
    num_heads = 8
    head_dim = 64

    [layer.mlp]
    kind = "mlp"
    intermediate_size = 1536

    [layer.head]
    kind = "head"
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from evener.spec.complaints import closest
from evener.spec.fields import Count, LayerName, Name, Problem, Problems, Spec
from evener.spec.layers import LayerSpec
from evener.spec.pattern import expand_pattern


@dataclass(frozen=True)
class Layer:
    """One layer of a model.

    name: unique in the model, the configuration's name and the position: ``mlp_2``.
    config: the name of its configuration; layers of one configuration cost the same.
    """

    name: str
    config: str
    spec: LayerSpec

    @property
    def kind(self) -> str:
        return self.spec.kind


def layer_config(layer_name: str) -> str:
    """The configuration that a layer has, from its unique name: ``mlp_2`` has ``mlp``."""
    return layer_name.rpartition("_")[0]


class ModelSpec(Spec):
    """A model as a sequence of layers.

    hidden_size: width of the tensors between layers. vocabulary_size: rows of the embedding and
    width of the logits. norm: normalisation before each layer (and after it with post_norm).
    layer_configs: layer configurations by name; pattern: their order.
    """

    name: Name
    hidden_size: Count
    vocabulary_size: Count | None = None
    tied_embeddings: bool = False
    norm: Literal["rms", "layer", "none"] = "rms"
    post_norm: bool = False
    layer_configs: dict[LayerName, LayerSpec] = Field(validation_alias="layer")
    pattern: str

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All layers from first to last."""
        return tuple(
            Layer(f"{config}_{position}", config, self.layer_configs[config])
            for position, config in enumerate(expand_pattern(self.pattern))
        )

    @property
    def tied_layers(self) -> tuple[int, int] | None:
        """Positions of the embedding and of the head that share one matrix, if they do."""
        if not self.tied_embeddings:
            return None
        kinds = [layer.kind for layer in self.layers]
        return kinds.index("embedding"), kinds.index("head")

    def fingerprint(self) -> str:
        """A hash of everything but the name: equal for two models iff a plan fits both."""
        facts = self.model_dump(mode="json", exclude={"name", "pattern", "layer_configs"})
        facts["layers"] = [(layer.name, layer.spec.model_dump()) for layer in self.layers]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @field_validator("pattern")
    @classmethod
    def _names_are_known(cls, pattern: str, info: ValidationInfo) -> str:
        names = dict.fromkeys(expand_pattern(pattern))
        known = info.data.get("layer_configs", names)
        found = [_unknown_layer(name, known) for name in names if name not in known]
        if found:
            raise Problems([((), text) for text in found])
        unused = [name for name in known if name not in names]
        if unused:
            raise Problems([((), _unused_layer(name)) for name in unused])
        return pattern

    @model_validator(mode="after")
    def _vocabulary_is_used(self) -> Self:
        kinds = [layer.kind for layer in self.layers]
        found: list[Problem] = []
        if self.vocabulary_size is None and {"embedding", "head"} & set(kinds):
            found.append((("vocabulary_size",), "is missing; the embedding and the head need it"))
        if self.tied_embeddings and not (kinds.count("embedding") == kinds.count("head") == 1):
            found.append((("tied_embeddings",), _cannot_tie(kinds)))
        if found:
            raise Problems(found)
        return self


def _unknown_layer(name: str, known: Iterable[str]) -> str:
    return f'names "{name}", but there is no [layer.{name}]{closest(name, known)}'


def _unused_layer(name: str) -> str:
    return f"does not name [layer.{name}]; add it to the pattern or remove the table"


def _cannot_tie(kinds: list[str]) -> str:
    counts = f"{kinds.count('embedding')} and {kinds.count('head')}"
    return f"needs one embedding and one head in the pattern, which has {counts}"
