"""Operations of small models, counted by hand."""

from evener.cost.flops import model_flops, slice_flops
from evener.spec import ModelSpec


def _model(pattern, **layers):
    return ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 4,
            "vocabulary_size": 10,
            "norm": "none",
            "layer": layers,
            "pattern": pattern,
        }
    )


def test_six_per_matrix_parameter_and_token():
    # not gated: 4 x 8 + 8 x 4 = 64 parameters
    model = _model("mlp", mlp={"kind": "mlp", "intermediate_size": 8, "gated": False})
    assert model_flops(model, num_tokens=5, sequence_length=5) == 6 * 64 * 5


def test_embedding_is_free_and_the_head_is_not():
    model = _model("embedding head", embedding={"kind": "embedding"}, head={"kind": "head"})
    assert model_flops(model, num_tokens=3, sequence_length=3) == 6 * 4 * 10 * 3


def test_tied_head_computes_all_the_same():
    layers = {"embedding": {"kind": "embedding"}, "head": {"kind": "head"}}
    tied = _model("embedding head", **layers).model_copy(update={"tied_embeddings": True})
    assert model_flops(tied, num_tokens=3, sequence_length=3) == 6 * 4 * 10 * 3


def test_attention_counts_its_products():
    # projections 4 x (4 + 4 + 4) + 4 x 4 = 64; products 12 x 2 heads x 2 x 7 tokens = 336
    model = _model("attention", attention={"kind": "attention", "num_heads": 2, "head_dim": 2})
    assert model_flops(model, num_tokens=7, sequence_length=7) == (6 * 64 + 336) * 7


def test_window_bounds_the_context():
    attention = {"kind": "attention", "num_heads": 2, "head_dim": 2, "window": 3}
    model = _model("attention", attention=attention)
    assert model_flops(model, num_tokens=7, sequence_length=7) == (6 * 64 + 12 * 4 * 3) * 7


def test_a_token_visits_its_own_experts():
    # router 4 x 5 = 20; two of five experts with 2 x 4 x 8 = 64 each
    moe = {
        "kind": "moe", "num_experts": 5, "top_k": 2, "intermediate_size": 8, "gated": False,
    }  # fmt: skip
    model = _model("moe", moe=moe)
    assert model_flops(model, num_tokens=2, sequence_length=2) == 6 * (20 + 128) * 2


def test_a_block_is_its_two_halves():
    mlp = {"kind": "mlp", "intermediate_size": 8, "gated": False}
    attention = {"kind": "attention", "num_heads": 2, "head_dim": 2}
    block = _model("block", block={"kind": "block", "mixer": attention, "feedforward": mlp})
    assert model_flops(block, num_tokens=7, sequence_length=7) == (6 * 128 + 336) * 7


ATTENTION = {"kind": "attention", "num_heads": 2, "head_dim": 2}


def _slices(model, lengths):
    """(matrices, products) of each slice of the first layer."""
    found, first = [], 0
    for length in lengths:
        part = slice_flops(model, model.layers[0].spec, first_token=first, num_tokens=length)
        found.append((part.matrices, part.products))
        first += length
    return found


def test_slices_see_the_keys_before_them():
    # 64 parameters; products 12 x 2 x 2 = 48 per key. Tokens 0 to 3 see 1 + 2 + 3 + 4 keys, 4 and 5
    # see 5 + 6.
    model = _model("attention", attention=ATTENTION)
    assert _slices(model, (4, 2)) == [(6 * 64 * 4, 48 * 10), (6 * 64 * 2, 48 * 11)]


def test_a_window_bounds_the_keys_of_a_slice():
    # Window 3: tokens see 1, 2, 3, 3, 3, 3 keys.
    model = _model("attention", attention={**ATTENTION, "window": 3})
    assert [products // 48 for _, products in _slices(model, (1, 1, 2, 2))] == [1, 2, 6, 6]


def test_a_block_has_the_products_of_its_mixer():
    mlp = {"kind": "mlp", "intermediate_size": 8, "gated": False}
    model = _model("b", b={"kind": "block", "mixer": ATTENTION, "feedforward": mlp})
    assert _slices(model, (1, 1)) == [(6 * 128, 48), (6 * 128, 96)]
