"""Our parameter counts against the models that transformers builds from the same configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from evener.errors import SpecError
from evener.spec import num_parameters
from evener.spec.huggingface import SUPPORTED_MODEL_TYPES, model_from_hf_config

BASE = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 2,
    "n_group": 1,
    "topk_group": 1,
}
NEMOTRON = {
    "hybrid_override_pattern": "M-*-M",
    "head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "use_bias": True,
}
JAMBA = {
    "attn_layer_period": 4,
    "attn_layer_offset": 2,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}

# (model type, what differs from the base, the pattern expected)
CONFIGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("llama", {}, "5 x block"),
    "llama, biases, tied": (
        "llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "5 x block",
    ),
    "mistral": ("mistral", {"sliding_window": 32}, "5 x block"),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, "5 x block"),
    "qwen2": ("qwen2", {}, "5 x block"),
    "qwen2, sliding": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 3},
        "3 x block 2 x block2",
    ),
    "qwen3": ("qwen3", {"head_dim": 32, "attention_bias": True}, "5 x block"),
    "qwen2_moe": (
        "qwen2_moe",
        EXPERTS | {"shared_expert_intermediate_size": 96, "decoder_sparse_step": 2},
        "block block2 block block2 block",
    ),
    "qwen3_moe": (
        "qwen3_moe",
        EXPERTS | {"head_dim": 32, "mlp_only_layers": [1]},
        "block block2 3 x block",
    ),
    "gemma": ("gemma", {"head_dim": 32}, "5 x block"),
    "gemma2": ("gemma2", {"head_dim": 32}, "block block2 block block2 block"),
    "gemma3_text": (
        "gemma3_text",
        {"head_dim": 32, "num_hidden_layers": 7},
        "5 x block block2 block",
    ),
    "deepseek_v2": (
        "deepseek_v2",
        LATENT | {"n_shared_experts": 2, "q_lora_rank": None},
        "2 x block 3 x block2",
    ),
    "deepseek_v3": (
        "deepseek_v3",
        LATENT | {"n_shared_experts": 1, "attention_bias": True},
        "2 x block 3 x block2",
    ),
    "nemotron_h": ("nemotron_h", NEMOTRON, "mamba mlp attention mlp mamba"),
    "nemotron_h, experts": (
        "nemotron_h",
        NEMOTRON
        | {
            "hybrid_override_pattern": "ME*-E",
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "moe_shared_expert_intermediate_size": 80,
            "moe_latent_size": 32,
        },
        "mamba moe attention mlp moe",
    ),
    "jamba": ("jamba", JAMBA, "block block2 block3 block2 block"),
}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def counted(transformers, config) -> int:
    import torch

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("model_type", "changes", "pattern"), CONFIGS.values(), ids=CONFIGS)
def test_parameters_are_those_of_transformers(
    transformers, model_type: str, changes: dict[str, Any], pattern: str
) -> None:
    config = transformers.AutoConfig.for_model(model_type, **BASE | changes)
    model = model_from_hf_config(config.to_dict())
    assert model.pattern == f"embedding {pattern} head"
    assert num_parameters(model) == counted(transformers, config)
    split = model_from_hf_config(config.to_dict(), split_blocks=True)
    assert num_parameters(split) == num_parameters(model)
    assert not any(layer.kind == "block" for layer in split.layers)


def test_every_family_is_counted() -> None:
    assert {model_type for model_type, _, _ in CONFIGS.values()} == set(SUPPORTED_MODEL_TYPES)


def test_windows_of_the_layers() -> None:
    config = BASE | {"model_type": "gemma2", "head_dim": 32, "sliding_window": 8}
    model = model_from_hf_config(config, split_blocks=True)
    windows = [layer.spec.window for layer in model.layers if layer.kind == "attention"]
    assert windows == [8, None, 8, None, 8]


@pytest.mark.parametrize("by_folder", [True, False])
def test_a_file_is_read_and_names_the_model(tmp_path: Path, by_folder: bool) -> None:
    path = tmp_path / "tiny-llama" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(BASE | {"model_type": "llama"}))
    model = model_from_hf_config(path.parent if by_folder else path)
    assert model.name == "tiny-llama"
    assert model_from_hf_config(path, name="other").name == "other"


SUPPORTED = (
    "(supported: deepseek_v2, deepseek_v3, gemma, gemma2, gemma3_text, jamba, llama, mistral, "
    "mixtral, nemotron_h, qwen2, qwen2_moe, qwen3, qwen3_moe)"
)
NEMOTRON_LAYERS = "M, *, -, E, linear_attention, mamba, full_attention, attention, mlp, moe"
REFUSED = {
    "unsupported": ({"model_type": "gpt2"}, [f'model_type: "gpt2" is not supported {SUPPORTED}']),
    "no type": ({}, [f"model_type: is missing {SUPPORTED}"]),
    "type is no text": (
        {"model_type": ["llama"]},
        [f"model_type: \"['llama']\" is not supported {SUPPORTED}"],
    ),
    "more than language": (
        {"model_type": "gemma3", "text_config": {}},
        [
            'model_type: "gemma3" has parts besides its language model; give its text_config alone '
            + SUPPORTED
        ],
    ),
    "several things": (
        BASE
        | {
            "model_type": "llama",
            "hidden_size": None,
            "num_key_value_heads": 3,
            "vocab_size": -1,
            "hidden_act": "sillu",
            "attention_dropout": 1,
            "mlp_bias": "no",
        },
        [
            "num_key_value_heads: 3 should divide the 4 heads",
            "hidden_size: is missing",
            "attention_dropout: 1 should be a number from 0 to below 1",
            'mlp_bias: "no" should be true or false',
            'hidden_act: unknown activation "sillu"; did you mean "silu"?',
            "vocab_size: -1 should be a whole number, at least 1",
        ],
    ),
    "unknown layer": (
        BASE | NEMOTRON | {"model_type": "nemotron_h", "hybrid_override_pattern": "M?"},
        [f'hybrid_override_pattern: unknown layer "?"; known: {NEMOTRON_LAYERS}'],
    ),
    "no layers": (
        BASE | {"model_type": "nemotron_h", "hybrid_override_pattern": ""},
        ["hybrid_override_pattern: names no layer"],
    ),
    "layer types too short": (
        BASE
        | {
            "model_type": "gemma2",
            "layer_types": ["sliding_attention"],
            "sliding_window": 8,
            "mlp_only_layers": 3,
        },
        ["layer_types: has 1 of 5 layers"],
    ),
    "positions are no list": (
        BASE | EXPERTS | {"model_type": "qwen3_moe", "mlp_only_layers": "first"},
        ['mlp_only_layers: "first" should be a list of layer positions'],
    ),
    "types are no list": (
        BASE | {"model_type": "qwen2", "layer_types": 5},
        ["layer_types: 5 should be a list of layer types", "layer_types: has 0 of 5 layers"],
    ),
    "too few experts": (
        BASE | {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3},
        ["num_experts_per_tok: 3 should be at most 2 experts"],
    ),
    "sparse in turns": (
        BASE | LATENT | {"model_type": "deepseek_v2", "moe_layer_freq": 2},
        ["moe_layer_freq: only 1 is supported: every layer after the dense ones"],
    ),
    "groups": (
        BASE | NEMOTRON | {"model_type": "nemotron_h", "n_groups": 3},
        ["n_groups: 3 should divide the 8 Mamba heads"],
    ),
    "too many layers": (
        BASE | {"model_type": "llama", "num_hidden_layers": 10**12},
        ["num_hidden_layers: 1000000000000 should be at most 100000"],
    ),
}


@pytest.mark.parametrize(("config", "expected"), REFUSED.values(), ids=REFUSED)
def test_refused(config: dict[str, Any], expected: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        model_from_hf_config(config)
    assert caught.value.violations == tuple(f"config: {text}" for text in expected)
    assert caught.value.header == "config does not describe a model that Evener can read:"


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ('{"a": }', ":1: not JSON at column 7: Expecting value"),
        ("[1]", ": is not a JSON object, as a config.json is"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, text: str, violation: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        model_from_hf_config(path)
    assert caught.value.violations == (f"{path}{violation}",)
