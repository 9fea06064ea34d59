"""How each family of Hugging Face models lays out its decoder layers.

Each family is one function that gives, for every decoder layer, its parts in order: a mixer of
tokens and a feed-forward, or one of the two where the family keeps them apart.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from evener.spec.hf_values import HfValues
from evener.spec.layers import (
    AttentionSpec,
    LatentSpec,
    Mamba1Spec,
    MambaSpec,
    MlpSpec,
    MoeSpec,
)

Mixer = AttentionSpec | MambaSpec | Mamba1Spec
FeedForward = MlpSpec | MoeSpec
Parts = tuple[Mixer, FeedForward] | tuple[Mixer | FeedForward]


@dataclass(frozen=True)
class Family:
    """parts: gives the layers. defaults: what its files may leave out. post_norm: as ModelSpec."""

    parts: Callable[[HfValues], Iterator[Parts]]
    defaults: dict[str, Any] = field(default_factory=dict)
    post_norm: bool = False


def _attention(
    config: HfValues,
    *,
    window: int | None = None,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: bool = False,
    rope: bool = True,
) -> AttentionSpec:
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", heads)
    if heads % kv_heads:
        config.complain("num_key_value_heads", f"{kv_heads} should divide the {heads} heads")
        kv_heads = heads
    head_dim = config.optional_count("head_dim") or config.optional_count("attention_head_dim")
    return AttentionSpec(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim or max(1, config.count("hidden_size") // heads),
        window=window,
        rope=rope,
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        qk_norm=qk_norm,
        dropout=config.fraction("attention_dropout"),
    )


def _mlp(config: HfValues, *, bias: bool = False) -> MlpSpec:
    return MlpSpec(
        intermediate_size=config.count("intermediate_size"),
        activation=config.activation("hidden_act"),
        bias=bias,
    )


def _moe(config: HfValues, *, experts: str, intermediate: str, **more: Any) -> MoeSpec:
    """``experts`` and ``intermediate`` are the keys of their number and of the width of one."""
    # Files written by transformers 5 have one key for all families.
    experts = experts if config.has(experts) else "num_local_experts"
    num_experts = config.count(experts)
    top_k = config.count("num_experts_per_tok")
    if top_k > num_experts and config.has(experts):
        config.complain("num_experts_per_tok", f"{top_k} should be at most {num_experts} experts")
        top_k = num_experts
    return MoeSpec(
        num_experts=num_experts,
        top_k=top_k,
        intermediate_size=config.count(intermediate),
        **{"activation": config.activation("hidden_act")} | more,
    )


def _windows(config: HfValues, slides: Callable[[int], bool]) -> list[int | None]:
    """The window of each layer: by ``layer_types`` of the file, else where ``slides`` says so."""
    types = config.names("layer_types")
    if types is None:
        sliding = [slides(position) for position in range(config.num_layers)]
    else:
        sliding = [name == "sliding_attention" for name in types]
        if len(types) != config.num_layers:
            config.complain("layer_types", f"has {len(types)} of {config.num_layers} layers")
    return [config.count("sliding_window") if slide else None for slide in sliding]


def _llama(config: HfValues) -> Iterator[Parts]:
    bias = config.flag("attention_bias")
    attention = _attention(config, qkv_bias=bias, out_bias=bias)
    mlp = _mlp(config, bias=config.flag("mlp_bias"))
    yield from [(attention, mlp)] * config.num_layers


def _mistral(config: HfValues) -> Iterator[Parts]:
    attention = _attention(config, window=config.optional_count("sliding_window"))
    yield from [(attention, _mlp(config))] * config.num_layers


def _mixtral(config: HfValues) -> Iterator[Parts]:
    attention = _attention(config, window=config.optional_count("sliding_window"))
    moe = _moe(config, experts="num_local_experts", intermediate="intermediate_size")
    yield from [(attention, moe)] * config.num_layers


def _qwen_windows(config: HfValues) -> list[int | None]:
    first = config.count("max_window_layers", 0, least=0)
    slides = config.flag("use_sliding_window")
    return _windows(config, lambda position: slides and position >= first)


def _qwen2(config: HfValues) -> Iterator[Parts]:
    for window in _qwen_windows(config):
        yield _attention(config, window=window, qkv_bias=True), _mlp(config)


def _qwen3(config: HfValues) -> Iterator[Parts]:
    bias = config.flag("attention_bias")
    for window in _qwen_windows(config):
        attention = _attention(config, window=window, qkv_bias=bias, out_bias=bias, qk_norm=True)
        yield attention, _mlp(config)


def _qwen_is_sparse(config: HfValues, position: int) -> bool:
    step = config.count("decoder_sparse_step", 1)
    return position not in config.positions("mlp_only_layers") and (position + 1) % step == 0


def _qwen2_moe(config: HfValues) -> Iterator[Parts]:
    last = config.count("max_window_layers", 0, least=0)
    slides = config.flag("use_sliding_window")
    windows = _windows(config, lambda position: slides and position % 2 == 0 and position < last)
    bias = config.flag("qkv_bias", True)
    moe = _moe(
        config,
        experts="num_experts",
        intermediate="moe_intermediate_size",
        shared_intermediate_size=config.count("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    for position, window in enumerate(windows):
        attention = _attention(config, window=window, qkv_bias=bias)
        yield attention, moe if _qwen_is_sparse(config, position) else _mlp(config)


def _qwen3_moe(config: HfValues) -> Iterator[Parts]:
    bias = config.flag("attention_bias")
    slides = config.flag("use_sliding_window")
    window = config.optional_count("sliding_window") if slides else None
    attention = _attention(config, window=window, qkv_bias=bias, out_bias=bias, qk_norm=True)
    moe = _moe(config, experts="num_experts", intermediate="moe_intermediate_size")
    for position in range(config.num_layers):
        yield attention, moe if _qwen_is_sparse(config, position) else _mlp(config)


def _gemma(config: HfValues) -> Iterator[Parts]:
    yield from _gemma_layers(config, [None] * config.num_layers)


def _gemma2(config: HfValues) -> Iterator[Parts]:
    yield from _gemma_layers(config, _windows(config, lambda position: position % 2 == 0))


def _gemma3(config: HfValues) -> Iterator[Parts]:
    period = config.count("sliding_window_pattern", 6)
    windows = _windows(config, lambda position: (position + 1) % period != 0)
    yield from _gemma_layers(config, windows, qk_norm=True)


def _gemma_layers(
    config: HfValues, windows: list[int | None], *, qk_norm: bool = False
) -> Iterator[Parts]:
    bias = config.flag("attention_bias")
    # Files of the first Gemma say "gelu" and mean its tanh form, as all of the family do.
    mlp = MlpSpec(intermediate_size=config.count("intermediate_size"), activation="gelu_tanh")
    for window in windows:
        yield (
            _attention(config, window=window, qkv_bias=bias, out_bias=bias, qk_norm=qk_norm),
            mlp,
        )


def _deepseek(config: HfValues) -> Iterator[Parts]:
    bias = config.flag("attention_bias")
    attention = AttentionSpec(
        num_heads=config.count("num_attention_heads"),
        head_dim=config.count("qk_nope_head_dim"),
        qkv_bias=bias,
        out_bias=bias,
        latent=LatentSpec(
            query_rank=config.optional_count("q_lora_rank"),
            kv_rank=config.count("kv_lora_rank"),
            rope_head_dim=config.count("qk_rope_head_dim"),
            value_head_dim=config.count("v_head_dim"),
        ),
        dropout=config.fraction("attention_dropout"),
    )
    if config.count("moe_layer_freq", 1) != 1:
        config.complain("moe_layer_freq", "only 1 is supported: every layer after the dense ones")
    num_shared = config.count("n_shared_experts", 0, least=0)
    moe = _moe(
        config,
        experts="n_routed_experts",
        intermediate="moe_intermediate_size",
        shared_intermediate_size=num_shared * config.count("moe_intermediate_size"),
        router="sigmoid" if config.values["model_type"] == "deepseek_v3" else "softmax",
    )
    mlp = _mlp(config, bias=config.flag("mlp_bias"))
    num_dense = config.count("first_k_dense_replace", 0, least=0)
    for position in range(config.num_layers):
        yield attention, mlp if position < num_dense else moe


def _nemotron_h(config: HfValues) -> Iterator[Parts]:
    keys = ("layers_block_type", "layer_types", "hybrid_override_pattern")
    key = next((key for key in keys if config.has(key)), keys[-1])
    names = config.names(key)
    if not names:
        config.complain(key, "names no layer")
    for name in names or []:
        if name not in _NEMOTRON_PARTS:
            config.complain(key, f'unknown layer "{name}"; known: {", ".join(_NEMOTRON_PARTS)}')
        else:
            yield (_NEMOTRON_PARTS[name](config),)


def _nemotron_mamba(config: HfValues) -> Mixer | FeedForward:
    heads = config.count("mamba_num_heads")
    groups = config.count("n_groups")
    if heads % groups:
        config.complain("n_groups", f"{groups} should divide the {heads} Mamba heads")
        groups = heads
    return MambaSpec(
        num_heads=heads,
        head_dim=config.count("mamba_head_dim"),
        state_size=config.count("ssm_state_size"),
        num_groups=groups,
        conv_kernel=config.count("conv_kernel"),
        conv_bias=config.flag("use_conv_bias", True),
        bias=config.flag("use_bias"),
    )


def _nemotron_attention(config: HfValues) -> Mixer | FeedForward:
    return _attention(config, rope=False)


def _nemotron_mlp(config: HfValues) -> Mixer | FeedForward:
    return MlpSpec(
        intermediate_size=config.count("intermediate_size"),
        gated=False,
        activation=config.activation("mlp_hidden_act"),
        bias=config.flag("mlp_bias"),
    )


def _nemotron_moe(config: HfValues) -> Mixer | FeedForward:
    return _moe(
        config,
        experts="n_routed_experts",
        intermediate="moe_intermediate_size",
        shared_intermediate_size=config.count("moe_shared_expert_intermediate_size"),
        latent_size=config.optional_count("moe_latent_size"),
        router="sigmoid",
        gated=False,
        activation=config.activation("mlp_hidden_act"),
        bias=config.flag("mlp_bias"),
    )


_NEMOTRON_PARTS: dict[str, Callable[[HfValues], Mixer | FeedForward]] = {
    "M": _nemotron_mamba,
    "*": _nemotron_attention,
    "-": _nemotron_mlp,
    "E": _nemotron_moe,
    "linear_attention": _nemotron_mamba,
    "mamba": _nemotron_mamba,
    "full_attention": _nemotron_attention,
    "attention": _nemotron_attention,
    "mlp": _nemotron_mlp,
    "moe": _nemotron_moe,
}


def _jamba(config: HfValues) -> Iterator[Parts]:
    hidden_size = config.count("hidden_size")
    automatic = config.values.get("mamba_dt_rank", "auto") == "auto"
    mamba = Mamba1Spec(
        inner_size=config.count("mamba_expand") * hidden_size,
        state_size=config.count("mamba_d_state"),
        step_rank=math.ceil(hidden_size / 16) if automatic else config.count("mamba_dt_rank"),
        conv_kernel=config.count("mamba_d_conv"),
        conv_bias=config.flag("mamba_conv_bias", True),
        bias=config.flag("mamba_proj_bias"),
        inner_norm=True,
    )
    attention = _attention(config, rope=False)
    mlp = _mlp(config)
    moe = _moe(config, experts="num_experts", intermediate="intermediate_size")
    for position in range(config.num_layers):
        mixer = attention if _is_turn(config, "attn_layer", position) else mamba
        sparse = moe.num_experts > 1 and _is_turn(config, "expert_layer", position)
        yield mixer, moe if sparse else mlp


def _is_turn(config: HfValues, what: str, position: int) -> bool:
    period = config.count(f"{what}_period")
    return position % period == config.count(f"{what}_offset", least=0)


_GEMMA = {"tie_word_embeddings": True, "head_dim": 256}
_GEMMA3 = _GEMMA | {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 262_208,
    "sliding_window": 4096,
}

FAMILIES = {
    "deepseek_v2": Family(_deepseek),
    "deepseek_v3": Family(_deepseek),
    "gemma": Family(_gemma, _GEMMA),
    "gemma2": Family(_gemma2, _GEMMA, post_norm=True),
    "gemma3_text": Family(_gemma3, _GEMMA3, post_norm=True),
    "jamba": Family(_jamba),
    "llama": Family(_llama),
    "mistral": Family(_mistral),
    "mixtral": Family(_mixtral),
    "nemotron_h": Family(_nemotron_h, {"mlp_hidden_act": "relu2"}),
    "qwen2": Family(_qwen2),
    "qwen2_moe": Family(_qwen2_moe),
    "qwen3": Family(_qwen3, {"head_dim": 128}),
    "qwen3_moe": Family(_qwen3_moe),
}
