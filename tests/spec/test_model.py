import pytest
from pydantic import ValidationError

from evener.spec import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    HeadSpec,
    LatentSpec,
    Mamba1Spec,
    MambaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    OpaqueSpec,
    num_parameters,
)


def world(pattern: str = "embedding 2 x mlp head", **changes) -> ModelSpec:
    values = {
        "name": "world",
        "hidden_size": 4,
        "vocabulary_size": 10,
        "norm": "none",
        "layer_configs": {
            "embedding": EmbeddingSpec(),
            "mlp": MlpSpec(intermediate_size=3, gated=False),
            "head": HeadSpec(),
        },
        "pattern": pattern,
    }
    return ModelSpec(**values | changes)


def test_layers_are_named_by_configuration_and_position() -> None:
    layers = world().layers
    assert [layer.name for layer in layers] == ["embedding_0", "mlp_1", "mlp_2", "head_3"]
    assert [layer.config for layer in layers] == ["embedding", "mlp", "mlp", "head"]
    assert [layer.kind for layer in layers] == ["embedding", "mlp", "mlp", "head"]


def test_a_model_of_opaque_layers_needs_no_vocabulary() -> None:
    model = ModelSpec(
        name="mine",
        hidden_size=4,
        layer_configs={"a": OpaqueSpec(num_parameters=7), "b": OpaqueSpec(num_parameters=5)},
        pattern="3 x a b",
    )
    assert [layer.kind for layer in model.layers] == ["module"] * 4
    assert num_parameters(model) == 3 * 7 + 5


def test_tied_layers() -> None:
    assert world().tied_layers is None
    assert world(tied_embeddings=True).tied_layers == (0, 3)


def test_tied_matrix_counts_once() -> None:
    # Embedding 10 x 4; two MLPs of 4 x 3 up and 3 x 4 down; head 4 x 10 unless it is tied.
    assert num_parameters(world()) == 40 + 2 * 24 + 40
    assert num_parameters(world(tied_embeddings=True)) == 40 + 2 * 24


def test_fingerprint_sees_everything_but_the_name() -> None:
    model = world()
    assert model.fingerprint() == world(name="other").fingerprint()
    assert model.fingerprint() == world("embedding mlp mlp head").fingerprint()
    others = [
        world(hidden_size=8),
        world(vocabulary_size=11),
        world(tied_embeddings=True),
        world(norm="rms"),
        world("embedding 3 x mlp head"),
        world("mlp embedding mlp head"),
        world(layer_configs=world().layer_configs | {"mlp": MlpSpec(intermediate_size=3)}),
    ]
    assert len({model.fingerprint(), *(other.fingerprint() for other in others)}) == 8


def test_fingerprint_is_the_same_in_every_process() -> None:
    assert world().fingerprint() == (
        "de9478ca66659c1be402e61edabe967b79948e862d4459af10f1fff87624c360"
    )


def test_json_round_trip() -> None:
    assert ModelSpec.model_validate_json(world().model_dump_json()) == world()


def test_specs_are_frozen() -> None:
    with pytest.raises(ValidationError):
        world().hidden_size = 5  # type: ignore[misc]


def test_key_and_value_heads_default_to_all_heads() -> None:
    assert AttentionSpec(num_heads=6, head_dim=2).num_kv_heads == 6


# With hidden size 4. Each case: the layer, its numbers with the arithmetic.
COUNTED = {
    # 2 heads of 3 with 1 key-value head: query 4x6, key and value 4x3 each, out 6x4.
    "attention": (AttentionSpec(num_heads=2, num_kv_heads=1, head_dim=3), 24 + 12 + 12 + 24),
    # The same with biases 6+3+3 and 4, and two norms of 3.
    "biases and norms": (
        AttentionSpec(
            num_heads=2, num_kv_heads=1, head_dim=3, qkv_bias=True, out_bias=True, qk_norm=True
        ),
        72 + 12 + 4 + 6,
    ),
    # Query 4x2, its norm 2, then 2x(2 heads of 3+1); down 4x(5+1), norm 5, up 5x(2 heads of 3+2),
    # out (2 heads of 2)x4.
    "latent": (
        AttentionSpec(
            num_heads=2,
            head_dim=3,
            latent=LatentSpec(query_rank=2, kv_rank=5, rope_head_dim=1, value_head_dim=2),
        ),
        (8 + 2 + 16) + (24 + 5 + 50) + 16,
    ),
    # Query straight 4x(2 heads of 3+1).
    "latent without query rank": (
        AttentionSpec(
            num_heads=2,
            head_dim=3,
            latent=LatentSpec(kv_rank=5, rope_head_dim=1, value_head_dim=2),
        ),
        32 + (24 + 5 + 50) + 16,
    ),
    "gated mlp with bias": (MlpSpec(intermediate_size=3, bias=True), 2 * (12 + 3) + 12 + 4),
    # Router 4x5, 5 experts of two 4x3 and one 3x4, shared one of two 4x2 and one 2x4, its gate 4.
    "moe": (
        MoeSpec(
            num_experts=5,
            top_k=2,
            intermediate_size=3,
            shared_intermediate_size=2,
            shared_gate=True,
        ),
        20 + 5 * 36 + 24 + 4,
    ),
    # Router 4x5, projections 4x2 and 2x4, 5 experts of 2x3 and 3x2.
    "latent moe": (
        MoeSpec(num_experts=5, top_k=2, intermediate_size=3, latent_size=2, gated=False),
        20 + 16 + 5 * 12,
    ),
    # 2 heads of 3: inner 6; convolved 6 + 2 x 5 = 16; in 4x(6 + 16 + 2); convolution 16x4 + 16;
    # three numbers a head; norm 6; out 6x4.
    "mamba": (MambaSpec(num_heads=2, head_dim=3, state_size=5), 96 + 80 + 6 + 6 + 24),
    # Inner 6; in 4x12; convolution 6x4 + 6; 6x(1 + 2x5); step 1x6 + 6; decay 6x5; skip 6;
    # norms 1 + 2x5; out 6x4.
    "mamba1": (
        Mamba1Spec(inner_size=6, state_size=5, step_rank=1, inner_norm=True),
        48 + 30 + 66 + 12 + 30 + 6 + 11 + 24,
    ),
}


@pytest.mark.parametrize(("spec", "expected"), COUNTED.values(), ids=COUNTED)
def test_num_parameters(spec, expected: int) -> None:
    assert num_parameters(world(), spec) == expected
    # An RMS norm of 4 numbers before, a layer norm of 8 before and another one after.
    assert num_parameters(world(norm="rms"), spec) == expected + 4
    assert num_parameters(world(norm="layer", post_norm=True), spec) == expected + 16


def test_a_block_counts_both_parts() -> None:
    mixer, feedforward = COUNTED["mamba"][0], COUNTED["moe"][0]
    block = BlockSpec(mixer=mixer, feedforward=feedforward)
    model = world(norm="rms")
    assert num_parameters(model, block) == num_parameters(model, mixer) + num_parameters(
        model, feedforward
    )
