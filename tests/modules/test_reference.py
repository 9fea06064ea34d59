"""The reference layers learn as many numbers as the spec says and compute what the papers say."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from evener.errors import SpecError
from evener.modules.attention import rotate
from evener.modules.layers import layer_source
from evener.modules.reference import build_layer, build_layers
from evener.spec.model import ModelSpec
from evener.spec.parameters import num_parameters

ATTENTION = {"kind": "attention", "num_heads": 4, "num_kv_heads": 2, "head_dim": 6}
LATENT = {"kv_rank": 5, "rope_head_dim": 2, "value_head_dim": 3}
MOE = {"kind": "moe", "num_experts": 4, "top_k": 2, "intermediate_size": 6}
MAMBA = {"kind": "mamba", "num_heads": 4, "head_dim": 3, "state_size": 5}
MAMBA1 = {"kind": "mamba1", "inner_size": 8, "state_size": 4, "step_rank": 2}
MLP = {"kind": "mlp", "intermediate_size": 7}

KINDS: dict[str, dict[str, object]] = {
    "embedding": {"kind": "embedding"},
    "head": {"kind": "head"},
    "attention": ATTENTION,
    "attention with all": {**ATTENTION, "qkv_bias": True, "out_bias": True, "qk_norm": True},
    "window": {**ATTENTION, "window": 3},
    "latent": {**ATTENTION, "latent": LATENT},
    "latent with query rank": {
        **ATTENTION,
        "qkv_bias": True,
        "latent": {**LATENT, "query_rank": 4},
    },
    "mlp": MLP,
    "mlp without gate": {**MLP, "gated": False, "bias": True, "activation": "relu2"},
    "moe": MOE,
    "moe with all": {
        **MOE,
        "shared_intermediate_size": 5,
        "shared_gate": True,
        "latent_size": 4,
        "router": "sigmoid",
        "bias": True,
    },
    "mamba": {**MAMBA, "num_groups": 2},
    "mamba with bias": {**MAMBA, "bias": True, "conv_bias": False},
    "mamba1": MAMBA1,
    "mamba1 with all": {**MAMBA1, "bias": True, "inner_norm": True},
    "block": {"kind": "block", "mixer": ATTENTION, "feedforward": MLP},
}


def model_of(*kinds: str, **settings: object) -> ModelSpec:
    names = [kind.replace(" ", "_") for kind in kinds]
    return ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 8,
            "vocabulary_size": 11,
            "pattern": " ".join(names),
            "layer": dict(zip(names, (KINDS[kind] for kind in kinds), strict=True)),
            **settings,
        }
    )


def built(model: ModelSpec, index: int = 0) -> nn.Module:
    return build_layers(model, layers=[index], dtype=torch.float64, seed=3)[index]


def hidden(num_tokens: int = 7) -> Tensor:
    return torch.randn(2, num_tokens, 8, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("norm", ["rms", "layer", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_learns_as_many_numbers_as_the_spec_says(kind: str, norm: str) -> None:
    for post_norm in (False, True):
        model = model_of(kind, norm=norm, post_norm=post_norm)
        count = sum(parameter.numel() for parameter in built(model).parameters())
        assert count == num_parameters(model)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("embedding", "head")])
def test_keeps_shape_and_sees_no_later_token(kind: str) -> None:
    layer = built(model_of(kind))
    x = hidden()
    y = layer(x)
    assert y.shape == x.shape
    changed = x.clone()
    changed[:, 4:] += 1.0
    assert torch.allclose(layer(changed)[:, :4], y[:, :4], atol=1e-12)
    assert not torch.allclose(layer(changed)[:, 4:], y[:, 4:], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(kind: str) -> None:
    layer = built(model_of(kind))
    x = torch.arange(10).view(2, 5) if kind == "embedding" else hidden(16)
    layer(x).square().sum().backward()
    missing = [name for name, each in layer.named_parameters() if each.grad is None]
    assert missing == []


def test_a_window_hides_older_tokens() -> None:
    layer = built(model_of("window"))
    x = hidden()
    changed = x.clone()
    changed[:, 0] += 1.0
    # A window of 3 lets token 2 see tokens 0, 1, 2, and token 3 see 1, 2, 3.
    assert torch.allclose(layer(changed)[:, 3:], layer(x)[:, 3:], atol=1e-12)
    assert not torch.allclose(layer(changed)[:, 2], layer(x)[:, 2], atol=1e-6)


def test_attention_is_a_softmax_over_the_past() -> None:
    attention = built(model_of("attention", norm="none")).attn
    x = hidden()
    q = attention.q(x).view(2, 7, 4, 6).transpose(1, 2)
    k = attention.k(x).view(2, 7, 2, 6).transpose(1, 2).repeat_interleave(2, 1)
    v = attention.v(x).view(2, 7, 2, 6).transpose(1, 2).repeat_interleave(2, 1)
    scores = rotate(q) @ rotate(k).transpose(-1, -2) / 6**0.5
    scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
    expected = attention.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 7, 24))
    assert torch.allclose(attention(x), expected, atol=1e-12)


def test_rotated_products_depend_on_distance_alone() -> None:
    q, k = hidden()[0, :1], hidden()[1, :1]
    turned_q, turned_k = rotate(q.expand(7, 8)), rotate(k.expand(7, 8))
    assert torch.allclose(turned_q[5] @ turned_k[3], turned_q[2] @ turned_k[0], atol=1e-12)
    assert not torch.allclose(turned_q[5] @ turned_k[3], turned_q[5] @ turned_k[0], atol=1e-3)


def test_experts_are_weighted_by_renormalised_scores() -> None:
    moe = built(model_of("moe", norm="none")).moe
    x = hidden().view(-1, 8)
    probabilities = moe.router(x).softmax(-1)
    expected = []
    for token, row in zip(x, probabilities, strict=True):
        best = row.argsort(descending=True)[:2].tolist()
        total = sum(row[each] for each in best)
        expected.append(sum(row[each] / total * moe.experts[each](token) for each in best))
    assert torch.allclose(moe(x.view(2, 7, 8)).view(-1, 8), torch.stack(expected), atol=1e-12)


def test_mamba2_equals_its_recurrence() -> None:
    mamba = built(model_of("mamba", norm="none")).mamba
    x = hidden()
    # inner 4*3 = 12, two groups of 5 states for b and for c: the convolution has 12 + 20.
    gate, mixed, step = mamba.in_proj(x).split((12, 32, 4), -1)
    inner, b, c = mamba.conv(mixed).split((12, 10, 10), -1)
    inner = inner.view(2, 7, 4, 3)
    b, c = (each.view(2, 7, 2, 5).repeat_interleave(2, 2) for each in (b, c))
    step = functional.softplus(step + mamba.step_bias)
    state = torch.zeros(2, 4, 3, 5).double()
    outputs = []
    for t in range(7):
        decay = (-mamba.log_decay.exp() * step[:, t]).exp()[:, :, None, None]
        state = decay * state + (step[:, t, :, None] * inner[:, t])[..., None] * b[:, t, :, None]
        outputs.append((state * c[:, t, :, None]).sum(-1) + mamba.skip[:, None] * inner[:, t])
    y = torch.stack(outputs, 1).flatten(2) * functional.silu(gate)
    assert torch.allclose(mamba(x), mamba.out_proj(mamba.norm(y)), atol=1e-12)


def test_mamba1_first_token_by_hand() -> None:
    mamba = built(model_of("mamba1", norm="none")).mamba
    x = hidden(1)
    inner, gate = mamba.in_proj(x).chunk(2, -1)
    # One token: the convolution sees zeros before it, and the state starts at zero.
    inner = functional.silu(inner * mamba.conv.weight[:, 0, -1] + mamba.conv.bias)
    step, b, c = mamba.x_proj(inner).split((2, 4, 4), -1)
    step = functional.softplus(mamba.step_proj(step))
    y = step * inner * (b * c).sum(-1, keepdim=True) + inner * mamba.skip
    assert torch.allclose(mamba(x), mamba.out_proj(y * functional.silu(gate)), atol=1e-12)


def test_dropout_is_on_in_training_only() -> None:
    model = ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 8,
            "pattern": "mlp",
            "layer": {"mlp": {**MLP, "dropout": 0.5}},
        }
    )
    layer = built(model)
    assert not torch.equal(layer(hidden()), layer(hidden()))
    layer.eval()
    assert torch.equal(layer(hidden()), layer(hidden()))


def test_weights_do_not_depend_on_which_layers_are_built() -> None:
    model = model_of("embedding", "attention", "mamba1", "moe", "head", tied_embeddings=True)
    whole = build_layers(model, seed=1)
    assert list(whole) == [0, 1, 2, 3, 4]
    assert whole[4].projection.weight is whole[0].tokens.weight
    for index, layer in whole.items():
        alone = build_layers(model, layers=[index], seed=1)[index]
        for (name, ours), theirs in zip(alone.named_parameters(), layer.parameters(), strict=True):
            assert torch.equal(ours, theirs), (index, name)
    other = build_layers(model, layers=[1], seed=2)[1]
    assert not torch.equal(other.attn.q.weight, whole[1].attn.q.weight)


def test_building_does_not_touch_the_callers_random_numbers() -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    build_layers(model_of(*KINDS))
    assert torch.equal(torch.rand(3), expected)


def test_device_and_type_are_those_asked_for() -> None:
    layers = build_layers(model_of("embedding", "mlp"), dtype=torch.bfloat16)
    assert {each.dtype for layer in layers.values() for each in layer.parameters()} == {
        torch.bfloat16
    }


def test_an_opaque_layer_cannot_be_built() -> None:
    model = ModelSpec.model_validate(
        {
            "name": "mine",
            "hidden_size": 8,
            "pattern": "x",
            "layer": {"x": {"kind": "module", "num_parameters": 3}},
        }
    )
    with pytest.raises(SpecError, match="give the module itself instead of its spec"):
        build_layer(model, model.layers[0].spec)


def test_names_are_those_of_the_whole_model() -> None:
    source = layer_source(model_of("embedding", "attention", "head", tied_embeddings=True))
    assert source.names == ("layers.0", "layers.1", "layers.2")
    assert source.shared == (((0, "tokens.weight"), (2, "projection.weight")),)
    names = [name for name, _ in source.build([1])[1].named_parameters()]
    assert "attn.q.weight" in names
