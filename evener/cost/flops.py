"""Floating-point operations that a model needs: the numerator of the MFU.

Chowdhery et al., "PaLM", arXiv 2204.02311, appendix B: six per matrix parameter and token (two
forward, four backward), and 12 x heads x head size x context per token for the products of
queries, keys and values.  Recomputation does not count; of a mixture of experts only what a token
visits does; the embedding's look-up is free.

A slice of a sequence under causal attention has the products of its queries with the keys that they
see, those of earlier slices included: later slices cost more.
"""

from dataclasses import dataclass

from evener.spec.layers import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    HeadSpec,
    LayerSpec,
    MoeSpec,
)
from evener.spec.model import ModelSpec
from evener.spec.parameters import num_parameters

_PER_PARAMETER = 6
_PER_CONTEXT = 12


@dataclass(frozen=True)
class SliceFlops:
    """Operations of forward and backward of one slice of one sequence.

    matrices: with parameters. products: of queries, keys and values.
    """

    matrices: int
    products: int


def slice_flops(
    model: ModelSpec, layer: LayerSpec, *, first_token: int, num_tokens: int
) -> SliceFlops:
    """Operations of a layer on the tokens from ``first_token`` on, after all tokens before them.

    Source: Sun et al., "Seq1F1B", NAACL 2025 (arXiv 2406.03488), section 3, with windows and the
    exact number of keys.
    """
    matrices = _per_token(model, layer, 0) * num_tokens
    last = first_token + num_tokens
    return SliceFlops(matrices, _products(layer, last) - _products(layer, first_token))


def _products(layer: LayerSpec, num_tokens: int) -> int:
    """Of the first tokens of a sequence, each with itself and those before it in its window."""
    if isinstance(layer, BlockSpec):
        return _products(layer.mixer, num_tokens) + _products(layer.feedforward, num_tokens)
    if not isinstance(layer, AttentionSpec):
        return 0
    window = min(num_tokens, layer.window or num_tokens)
    num_keys = window * (window + 1) // 2 + (num_tokens - window) * window
    return _PER_CONTEXT * layer.num_heads * layer.head_dim * num_keys


def model_flops(model: ModelSpec, *, num_tokens: int, sequence_length: int) -> int:
    """Operations of one step's forward and backward over ``num_tokens`` in such sequences."""
    per_token = sum(_per_token(model, layer.spec, sequence_length) for layer in model.layers)
    return per_token * num_tokens


def _per_token(model: ModelSpec, layer: LayerSpec, sequence_length: int) -> int:
    match layer:
        case EmbeddingSpec():
            return 0
        case HeadSpec():
            # The projection is computed whether its matrix is the embedding's or its own.
            return _PER_PARAMETER * (model.vocabulary_size or 0) * model.hidden_size
        case BlockSpec():
            halves = (layer.mixer, layer.feedforward)
            return sum(_per_token(model, half, sequence_length) for half in halves)
        case MoeSpec():
            return _PER_PARAMETER * _visited(model, layer)
        case AttentionSpec():
            context = min(sequence_length, layer.window or sequence_length)
            products = _PER_CONTEXT * layer.num_heads * layer.head_dim * context
            return _PER_PARAMETER * num_parameters(model, layer) + products
        case _:
            return _PER_PARAMETER * num_parameters(model, layer)


def _visited(model: ModelSpec, layer: MoeSpec) -> int:
    """Parameters that one token meets: the whole router, but only its own experts."""
    of_its_experts = layer.model_copy(update={"num_experts": layer.top_k})
    others = layer.num_experts - layer.top_k
    return num_parameters(model, of_its_experts) + others * model.hidden_size
