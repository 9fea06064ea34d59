"""Reference layers of a ``ModelSpec``: every kind that it knows, as plain PyTorch.

Shapes: B sequences, T tokens, D hidden size, V vocabulary.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from evener.errors import SpecError, UsageError, Violation
from evener.modules.attention import Attention, LatentAttention
from evener.modules.feedforward import Mlp, Moe
from evener.modules.mamba import Mamba1, Mamba2
from evener.modules.slice_context import SliceContext
from evener.modules.weights import draw_weights, linear
from evener.spec.layers import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    HeadSpec,
    LayerSpec,
    Mamba1Spec,
    MambaSpec,
    MlpSpec,
    MoeSpec,
    OpaqueSpec,
)
from evener.spec.model import ModelSpec


class Embedding(nn.Module):
    """Token indices [B, T] to vectors [B, T, D]."""

    def __init__(self, spec: EmbeddingSpec, model: ModelSpec) -> None:
        super().__init__()
        assert model.vocabulary_size is not None, "a model with an embedding has a vocabulary"
        self.tokens = nn.utils.skip_init(nn.Embedding, model.vocabulary_size, model.hidden_size)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.dropout(self.tokens(tokens_BT))


class _Residual(nn.Module):
    """``x + dropout(post_norm(inner(norm(x))))``: a normalised layer added to its input.

    The inner module is registered under its kind's short name: ``attn``, ``mlp``, ``moe``,
    ``mamba``, so that a weight is called ``layers.3.attn.q.weight``.
    """

    def __init__(self, name: str, inner: nn.Module, dropout: float, model: ModelSpec) -> None:
        super().__init__()
        self.norm = _norm(model)
        self.add_module(name, inner)
        self.inner_name = name
        self.post_norm = _norm(model) if model.post_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def _added(self, x_BTD: Tensor, *mixing: Any) -> Tensor:
        inner = self._modules[self.inner_name]
        assert inner is not None, "it was registered"
        return x_BTD + self.dropout(self.post_norm(inner(self.norm(x_BTD), *mixing)))


class FeedForward(_Residual):
    """A residual layer that works on each token alone."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self._added(x_BTD)


class TokenMixer(_Residual):
    """A residual layer in which tokens see one another, within documents and over slices.

    why_not_sliced: of one that needs whole sequences of one document each, the reason.
    """

    def __init__(
        self,
        name: str,
        inner: nn.Module,
        dropout: float,
        model: ModelSpec,
        *,
        why_not_sliced: str | None = None,
    ) -> None:
        super().__init__(name, inner, dropout, model)
        self.why_not_sliced = why_not_sliced

    def forward(
        self,
        x_BTD: Tensor,
        documents: Tensor | None = None,
        slice_context: SliceContext | None = None,
    ) -> Tensor:
        if self.why_not_sliced is None:
            return self._added(x_BTD, documents, slice_context)
        if documents is not None:
            raise UsageError("the batch cannot go through a Mamba layer", [_PACKED_STATE])
        assert slice_context is None, "a stage with this layer is never sliced"
        return self._added(x_BTD)


class Block(nn.Module):
    """A mixer of tokens, then a feed-forward, each residual."""

    def __init__(self, mixer: nn.Module, feedforward: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer
        self.feedforward = feedforward

    def forward(
        self,
        x_BTD: Tensor,
        documents: Tensor | None = None,
        slice_context: SliceContext | None = None,
    ) -> Tensor:
        return self.feedforward(self.mixer(x_BTD, documents, slice_context))


class Head(nn.Module):
    """Final normalisation and projection to logits [B, T, V]."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        assert model.vocabulary_size is not None, "a model with a head has a vocabulary"
        self.norm = _norm(model)
        self.projection = linear(model.hidden_size, model.vocabulary_size)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.projection(self.norm(x_BTD))


def _norm(model: ModelSpec) -> nn.Module:
    norms: dict[str, Callable[[], nn.Module]] = {
        "rms": lambda: nn.RMSNorm(model.hidden_size, eps=1e-6),
        "layer": lambda: nn.LayerNorm(model.hidden_size),
        "none": nn.Identity,
    }
    return norms[model.norm]()


def build_layer(model: ModelSpec, spec: LayerSpec) -> nn.Module:
    """The module of one layer, its matrices not drawn yet. SpecError for an opaque layer."""
    width = model.hidden_size
    match spec:
        case EmbeddingSpec():
            return Embedding(spec, model)
        case HeadSpec():
            return Head(model)
        case BlockSpec():
            return Block(build_layer(model, spec.mixer), build_layer(model, spec.feedforward))
        case AttentionSpec():
            kind = Attention if spec.latent is None else LatentAttention
            return TokenMixer("attn", kind(spec, width), spec.dropout, model)
        case MlpSpec():
            mlp = Mlp(spec, width, spec.intermediate_size)
            return FeedForward("mlp", mlp, spec.dropout, model)
        case MoeSpec():
            return FeedForward("moe", Moe(spec, width), spec.dropout, model)
        case MambaSpec() | Mamba1Spec():
            mamba = Mamba2(spec, width) if isinstance(spec, MambaSpec) else Mamba1(spec, width)
            return TokenMixer("mamba", mamba, spec.dropout, model, why_not_sliced=_ONE_STATE)
        case OpaqueSpec():
            raise SpecError(_cannot_build(model.name), [Violation(_OPAQUE)])


_ONE_STATE = "its state runs through all tokens of a sequence"
_PACKED_STATE = (
    'it has "documents", but a Mamba layer carries its state from one document into the next; give '
    "sequences of one document each"
)
_OPAQUE = 'a layer of kind "module" is not described; give the module itself instead of its spec'


def _cannot_build(name: str) -> str:
    return f'the model "{name}" cannot be built from its description'


def layer_name(index: int) -> str:
    """The global name of a reference layer, which prefixes its parameters' names."""
    return f"layers.{index}"


def build_layers(
    model: ModelSpec,
    *,
    layers: Iterable[int] | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> dict[int, nn.Module]:
    """Build the chosen layers of ``model`` (all by default), by index.

    Every weight depends on ``seed`` and its global name alone, so any choice of layers gives the
    same weights.  A tied head has the embedding's matrix: the same tensor where both are built.
    """
    chosen = range(len(model.layers)) if layers is None else sorted(set(layers))
    built: dict[int, nn.Module] = {}
    for index in chosen:
        module = build_layer(model, model.layers[index].spec)
        draw_weights(module, prefix=f"{layer_name(index)}.", seed=seed)
        built[index] = module
    if model.tied_layers is not None:
        _tie(model, built, seed)
    for module in built.values():
        module.to(device=device, dtype=dtype)
    return built


def _tie(model: ModelSpec, built: dict[int, nn.Module], seed: int) -> None:
    assert model.tied_layers is not None, "only tied models come here"
    first, last = model.tied_layers
    if last not in built:
        return
    embedding = built.get(first)
    if embedding is None:
        embedding = build_layer(model, model.layers[first].spec)
        draw_weights(embedding, prefix=f"{layer_name(first)}.", seed=seed)
    head = built[last]
    assert isinstance(head, Head), "a tied layer is a head"
    assert isinstance(embedding, Embedding), "the other is an embedding"
    head.projection.weight = embedding.tokens.weight
