"""Costs of slices of tokens: parts of what was measured for whole microbatches."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from evener.cost.build import cost_table
from evener.cost.profile import LayerCost, Profile
from evener.cost.slices import (
    Slicing,
    cannot_be_sliced,
    least_shares,
    slice_profiles,
    sliced_costs,
)
from evener.cost.table import KIND_INDEX, CostTable
from evener.ir.action import Kind
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec import ClusterSpec, JobSpec, ModelSpec

LENGTH = 6
MODEL = ModelSpec.model_validate(
    {
        "name": "tiny",
        "hidden_size": 4,
        "norm": "none",
        # 64 parameters: 384 operations a token; 48 for every key.
        "layer": {
            "attention": {"kind": "attention", "num_heads": 2, "head_dim": 2},
            "own": {"kind": "module", "num_parameters": 0},
        },
        "pattern": "attention own",
    }
)


def cost(layer: str, length: int = LENGTH) -> LayerCost:
    return LayerCost(
        layer=layer,
        microbatch_size=2,
        sequence_length=length,
        forward_ns=1_000,
        backward_ns=2_000,
        input_grad_ns=900,
        weight_grad_ns=600,
        recompute_ns=1_000,
        parameter_bytes=64,
        activation_bytes=601,
        weight_gradient_bytes=60,
        input_bytes=120,
        output_bytes=240,
    )


PROFILE = Profile(
    model="tiny",
    fingerprint=MODEL.fingerprint(),
    device_type="cpu",
    host="paper",
    dtype="float32",
    layers=(cost("attention"), cost("own"), cost("own", 12)),
    overhead_ns=7,
)


def test_times_follow_operations_and_bytes_follow_tokens() -> None:
    first, second = slice_profiles(PROFILE, MODEL, (4, 2))
    (attention, own), (attention_2, own_2) = first.layers, second.layers
    # Matrices 1536 and 768, products 480 and 528: 2016 and 1296 of 3312.
    assert (attention.forward_ns, attention_2.forward_ns) == (608, 392)
    assert (attention.backward_ns, attention_2.backward_ns) == (1_217, 783)
    # Input gradient: products twice; 2496 and 1824 of 4320. Weight gradient: tokens.
    assert (attention.input_grad_ns, attention_2.input_grad_ns) == (520, 380)
    assert (attention.weight_grad_ns, attention_2.weight_grad_ns) == (400, 200)
    assert (attention.activation_bytes, attention_2.activation_bytes) == (400, 201)
    assert (attention.input_bytes, attention_2.output_bytes) == (80, 80)
    assert attention.parameter_bytes == 64
    # Nothing is known of the inside of `own`: tokens. What was measured at 12 tokens is left out.
    assert (own.forward_ns, own_2.forward_ns) == (666, 334)


@pytest.mark.parametrize("tokens", [(6,), (1, 5), (3, 2, 1), (1, 1, 1, 1, 1, 1)])
def test_the_parts_add_up_to_the_whole(tokens: tuple[int, ...]) -> None:
    parts = slice_profiles(PROFILE, MODEL, tokens)
    for name in ("forward_ns", "backward_ns", "input_grad_ns", "weight_grad_ns", "recompute_ns"):
        assert sum(getattr(part.layers[0], name) for part in parts) == getattr(
            PROFILE.layers[0], name
        )
    assert sum(part.layers[1].activation_bytes for part in parts) == 601


def price_of(schedule: Schedule) -> Callable[[Profile], CostTable]:
    def price(profile: Profile) -> CostTable:
        return cost_table(
            schedule,
            layers=["attention", "own"],
            partition=[(0, 1), (1, 2)],
            devices=[("local:0",), ("local:1",)],
            profile=profile,
            cluster=ClusterSpec.local(2),
            job=JobSpec(sequence_length=LENGTH, microbatch_size=2),
        )

    return price


def test_a_table_of_slices() -> None:
    schedule = SCHEDULES["seq1f1b"](ScheduleShape(2, 4, num_slices=2))
    price = price_of(schedule)
    slicing = Slicing(MODEL, (4, 2), microbatch_size=2)
    table = sliced_costs(price, PROFILE, slicing, held=[["attention"], ["own"]])
    assert table.slices is not None
    # Every action pays the overhead of 7 ns.
    assert table.slices.time_ns[0, 0, KIND_INDEX[Kind.F]].tolist() == [615, 399]
    assert table.slices.forward_bytes.tolist() == [[160, 80], [160, 80]]
    assert table.slices.backward_bytes.tolist() == [[80, 40], [80, 40]]
    memory, whole = table.memory, price(PROFILE)
    assert memory.per_slice[Resource.ACTIVATION] == ((400, 201), (400, 201))
    assert memory.size_bytes(Resource.INPUT, 1, 0) == 80
    # The backward that runs needs 400 bytes, not 601; keys and values of worker 0 are
    # 2 x 2 heads x 2 numbers x 4 bytes x 2 sequences x 6 tokens = 384 bytes, held twice.
    assert memory.static_bytes[0] == whole.memory.static_bytes[0] - 601 + 400 + 2 * 384
    assert memory.static_bytes[1] == whole.memory.static_bytes[1] - 601 + 400
    assert np.array_equal(table.time_ns, whole.time_ns)


def test_latent_attention_hands_on_what_every_head_needs() -> None:
    latent = {"kv_rank": 2, "rope_head_dim": 1, "value_head_dim": 3}
    layers = {"a": {"kind": "attention", "num_heads": 2, "head_dim": 2, "latent": latent}}
    model = ModelSpec.model_validate(
        {"name": "m", "hidden_size": 4, "norm": "none", "layer": layers, "pattern": "2 x a"}
    )
    profile = PROFILE.model_copy(
        update={"layers": (PROFILE.layers[0].model_copy(update={"layer": "a"}),)}
    )
    schedule = SCHEDULES["seq1f1b"](ScheduleShape(2, 4, num_slices=2))

    whole = price_of(schedule)(PROFILE)
    slicing = Slicing(model, (4, 2), microbatch_size=1)
    table = sliced_costs(lambda part: whole, profile, slicing, held=[["a", "a"], []])
    # (2 + 1 + 3) numbers x 2 heads x 4 bytes x 6 tokens, two layers, twice.
    extra = 2 * 2 * (6 * 2 * 4 * 6)
    assert table.memory.static_bytes[0] - whole.memory.static_bytes[0] == extra


def test_layers_that_need_whole_sequences_are_named() -> None:
    mamba = {"kind": "mamba", "num_heads": 2, "head_dim": 2, "state_size": 2}
    layers = {
        "fine": {"kind": "attention", "num_heads": 2, "head_dim": 2, "window": 2},
        "both_ways": {"kind": "attention", "num_heads": 2, "head_dim": 2, "causal": False},
        "block": {
            "kind": "block",
            "mixer": mamba,
            "feedforward": {"kind": "mlp", "intermediate_size": 4},
        },
    }
    model = ModelSpec.model_validate(
        {"name": "m", "hidden_size": 4, "layer": layers, "pattern": "fine both_ways block"}
    )
    assert cannot_be_sliced(model) == [
        "both_ways: its tokens see later ones",
        "block: its state runs through all tokens of a sequence",
    ]
    assert cannot_be_sliced(MODEL) == []


def test_the_longest_slice_has_the_least_at_the_begin_of_a_sequence() -> None:
    # The first 3 of 6 tokens: matrices 1152 of 2304, products 288 of 1008, twice for the input.
    spec = MODEL.layer_configs["attention"]
    assert least_shares(MODEL, spec, num_tokens=3, of_tokens=6) == (
        Fraction(1_440, 3_312),
        Fraction(1_728, 4_320),
    )
    for tokens in ((4, 2), (2, 4), (1, 5), (3, 3), (2, 2, 2), (1, 3, 2), (6,)):
        part = slice_profiles(PROFILE, MODEL, tokens)[tokens.index(max(tokens))].layers[0]
        longest = -(-6 // len(tokens))
        forward, input_grad = least_shares(MODEL, spec, num_tokens=longest, of_tokens=6)
        assert part.forward_ns >= int(1_000 * forward)
        assert part.input_grad_ns >= int(900 * input_grad)
        assert part.backward_ns >= int(2_000 * input_grad)
