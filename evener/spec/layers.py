"""The kinds of layer that a model is made of. A layer is the smallest unit of partition.

Every layer maps a tensor [sequences, tokens, hidden_size] to one of the same shape, but the
embedding, which takes token indices, and the head, which gives logits. Layers other than these
two are residual: they add their result to their input. A layer begins with a normalisation
(and ends with one where the model says ``post_norm``); the head begins with the final one.
"""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from evener.spec.fields import Count, Fraction, Spec

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]


class EmbeddingSpec(Spec):
    """Token embedding: ``vocabulary_size`` rows of ``hidden_size``."""

    kind: Literal["embedding"] = "embedding"
    dropout: Fraction = 0.0


class LatentSpec(Spec):
    """Low-rank queries, keys and values (multi-head latent attention, DeepSeek-V2, section 2.1).

    query_rank: None where queries are not compressed. A query and a key have
    ``AttentionSpec.head_dim`` numbers without and ``rope_head_dim`` with rotary positions.
    """

    query_rank: Count | None = None
    kv_rank: Count
    rope_head_dim: Count
    value_head_dim: Count


class AttentionSpec(Spec):
    """Self-attention with rotary positions.

    num_kv_heads: heads of keys and values; as many as ``num_heads`` where not given.
    window: how many tokens back a query sees; None means all. qkv_bias, out_bias: biases of the
    projections; with ``latent``, qkv_bias is that of the projections down to the ranks.
    qk_norm: RMS normalisation of each query and key head.
    """

    kind: Literal["attention"] = "attention"
    num_heads: Count
    num_kv_heads: Count = Field(default_factory=lambda data: data["num_heads"])
    head_dim: Count
    causal: bool = True
    window: Count | None = None
    rope: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    latent: LatentSpec | None = None
    dropout: Fraction = 0.0

    @field_validator("num_kv_heads")
    @classmethod
    def _heads_share_evenly(cls, value: int, info: ValidationInfo) -> int:
        return _divides(value, info, "num_heads")


class MlpSpec(Spec):
    """Feed-forward layer. gated: the activation of one projection multiplies a second one."""

    kind: Literal["mlp"] = "mlp"
    intermediate_size: Count
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False
    dropout: Fraction = 0.0


class MoeSpec(Spec):
    """Mixture of experts: each token goes to ``top_k`` of ``num_experts``.

    intermediate_size: of one expert. shared_intermediate_size: of the expert that sees every
    token (the sum where there are several); 0 where there is none. shared_gate: that expert's
    result is scaled by a learned gate. latent_size: experts work at this width instead of
    ``hidden_size``, behind one shared projection down and one up.
    """

    kind: Literal["moe"] = "moe"
    num_experts: Count
    top_k: Count
    intermediate_size: Count
    shared_intermediate_size: Annotated[int, Field(ge=0)] = 0
    shared_gate: bool = False
    latent_size: Count | None = None
    router: Literal["softmax", "sigmoid"] = "softmax"
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False
    dropout: Fraction = 0.0

    @field_validator("top_k")
    @classmethod
    def _enough_experts(cls, value: int, info: ValidationInfo) -> int:
        experts = info.data.get("num_experts", value)
        if value > experts:
            raise ValueError(f"{value} should be at most num_experts = {experts}")
        return value


class MambaSpec(Spec):
    """State-space layer of Mamba-2 (arXiv 2405.21060, section 7)."""

    kind: Literal["mamba"] = "mamba"
    num_heads: Count
    head_dim: Count
    state_size: Count
    num_groups: Count = 1
    conv_kernel: Count = 4
    conv_bias: bool = True
    bias: bool = False
    dropout: Fraction = 0.0

    @field_validator("num_groups")
    @classmethod
    def _groups_share_evenly(cls, value: int, info: ValidationInfo) -> int:
        return _divides(value, info, "num_heads")


class Mamba1Spec(Spec):
    """State-space layer of Mamba-1 (arXiv 2312.00752, section 3.4).

    inner_size: width inside. step_rank: rank of the projection that gives the step sizes.
    inner_norm: RMS normalisation of step, input and output vectors, as in Jamba.
    """

    kind: Literal["mamba1"] = "mamba1"
    inner_size: Count
    state_size: Count
    step_rank: Count
    conv_kernel: Count = 4
    conv_bias: bool = True
    bias: bool = False
    inner_norm: bool = False
    dropout: Fraction = 0.0


class BlockSpec(Spec):
    """A transformer block, kept together in one layer: a mixer of tokens, then a feed-forward."""

    kind: Literal["block"] = "block"
    mixer: Annotated[AttentionSpec | MambaSpec | Mamba1Spec, Field(discriminator="kind")]
    feedforward: Annotated[MlpSpec | MoeSpec, Field(discriminator="kind")]


class HeadSpec(Spec):
    """Final normalisation and the projection to ``vocabulary_size`` logits, without bias.

    The projection is the embedding's matrix where the model says ``tied_embeddings``.
    """

    kind: Literal["head"] = "head"


class OpaqueSpec(Spec):
    """A layer whose inside is not described, such as a block of a user's own module.

    num_parameters: how many numbers it learns. Times and bytes come from a profile.
    """

    kind: Literal["module"] = "module"
    num_parameters: Annotated[int, Field(ge=0)]


LayerSpec = Annotated[
    EmbeddingSpec
    | AttentionSpec
    | MlpSpec
    | MoeSpec
    | MambaSpec
    | Mamba1Spec
    | BlockSpec
    | HeadSpec
    | OpaqueSpec,
    Field(discriminator="kind"),
]


def _divides(value: int, info: ValidationInfo, field: str) -> int:
    total = info.data.get(field, value)
    if total % value:
        raise ValueError(f"{value} should divide {field} = {total}")
    return value
