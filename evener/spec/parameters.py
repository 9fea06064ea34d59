"""How many numbers a layer learns."""

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


def num_parameters(model: ModelSpec, layer: LayerSpec | None = None) -> int:
    """Learnt numbers of one layer of ``model``, its normalisations included, or of all layers.

    A head whose matrix is the embedding's counts only its normalisation, so that the sum over
    all layers counts every number once.
    """
    if layer is None:
        return sum(num_parameters(model, each.spec) for each in model.layers)
    match layer:
        case EmbeddingSpec():
            return (model.vocabulary_size or 0) * model.hidden_size
        case HeadSpec():
            matrix = 0 if model.tied_embeddings else (model.vocabulary_size or 0)
            return matrix * model.hidden_size + _norm(model)
        case OpaqueSpec():
            return layer.num_parameters
        case BlockSpec():
            return num_parameters(model, layer.mixer) + num_parameters(model, layer.feedforward)
    norms = _norm(model) * (2 if model.post_norm else 1)
    return norms + _inside(layer, model.hidden_size)


def _norm(model: ModelSpec) -> int:
    return {"rms": 1, "layer": 2, "none": 0}[model.norm] * model.hidden_size


def _inside(
    layer: AttentionSpec | MlpSpec | MoeSpec | MambaSpec | Mamba1Spec, hidden_size: int
) -> int:
    match layer:
        case AttentionSpec(latent=None):
            return _attention(layer, hidden_size)
        case AttentionSpec():
            return _latent_attention(layer, hidden_size)
        case MlpSpec():
            return _mlp(layer, hidden_size, layer.intermediate_size)
        case MoeSpec():
            return _moe(layer, hidden_size)
        case MambaSpec():
            return _mamba(layer, hidden_size)
        case Mamba1Spec():
            return _mamba1(layer, hidden_size)


def _linear(inputs: int, outputs: int, bias: bool = False) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _attention(layer: AttentionSpec, hidden_size: int) -> int:
    query_width = layer.num_heads * layer.head_dim
    kv_width = layer.num_kv_heads * layer.head_dim
    return (
        _linear(hidden_size, query_width + 2 * kv_width, layer.qkv_bias)
        + _linear(query_width, hidden_size, layer.out_bias)
        + (2 * layer.head_dim if layer.qk_norm else 0)
    )


def _latent_attention(layer: AttentionSpec, hidden_size: int) -> int:
    latent = layer.latent
    assert latent is not None, "only latent attention comes here"
    query_width = layer.num_heads * (layer.head_dim + latent.rope_head_dim)
    if latent.query_rank is None:
        query = _linear(hidden_size, query_width)
    else:
        query = (
            _linear(hidden_size, latent.query_rank, layer.qkv_bias)
            + latent.query_rank
            + _linear(latent.query_rank, query_width)
        )
    kv_width = layer.num_heads * (layer.head_dim + latent.value_head_dim)
    return (
        query
        + _linear(hidden_size, latent.kv_rank + latent.rope_head_dim, layer.qkv_bias)
        + latent.kv_rank
        + _linear(latent.kv_rank, kv_width)
        + _linear(layer.num_heads * latent.value_head_dim, hidden_size, layer.out_bias)
    )


def _mlp(layer: MlpSpec | MoeSpec, hidden_size: int, intermediate_size: int) -> int:
    up = (2 if layer.gated else 1) * _linear(hidden_size, intermediate_size, layer.bias)
    return up + _linear(intermediate_size, hidden_size, layer.bias)


def _moe(layer: MoeSpec, hidden_size: int) -> int:
    width = layer.latent_size or hidden_size
    total = _linear(hidden_size, layer.num_experts)
    total += layer.num_experts * _mlp(layer, width, layer.intermediate_size)
    if layer.shared_intermediate_size:
        total += _mlp(layer, hidden_size, layer.shared_intermediate_size)
    if layer.shared_gate:
        total += hidden_size
    if layer.latent_size:
        total += _linear(hidden_size, width, layer.bias) + _linear(width, hidden_size, layer.bias)
    return total


def _mamba(layer: MambaSpec, hidden_size: int) -> int:
    inner = layer.num_heads * layer.head_dim
    conv = inner + 2 * layer.num_groups * layer.state_size
    return (
        _linear(hidden_size, inner + conv + layer.num_heads, layer.bias)
        + conv * layer.conv_kernel
        + (conv if layer.conv_bias else 0)
        + 3 * layer.num_heads  # step bias, decay and skip of each head
        + inner  # normalisation before the last projection
        + _linear(inner, hidden_size, layer.bias)
    )


def _mamba1(layer: Mamba1Spec, hidden_size: int) -> int:
    inner, state, rank = layer.inner_size, layer.state_size, layer.step_rank
    return (
        _linear(hidden_size, 2 * inner, layer.bias)
        + inner * layer.conv_kernel
        + (inner if layer.conv_bias else 0)
        + _linear(inner, rank + 2 * state)
        + _linear(rank, inner, True)
        + inner * state  # decay
        + inner  # skip
        + (rank + 2 * state if layer.inner_norm else 0)
        + _linear(inner, hidden_size, layer.bias)
    )
