"""Costs of a head in parts: shares of what was measured, and the logits twice."""

import pytest

from evener.cost.profile import LayerCost, Profile
from evener.cost.spread_head import cannot_spread, spread_cost_table, without_projection
from evener.cost.table import KIND_INDEX
from evener.ir.action import Kind
from evener.ir.passes import lower, spread_head
from evener.ir.rules import Resource
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec import ClusterSpec, JobSpec, ModelSpec

TOKENS, WIDTH, ROWS, FLOAT = 8, 4, 10, 4
X_BYTES = TOKENS * WIDTH * FLOAT


def model_of(*, tied: bool = False, pattern: str = "embedding mlp head") -> ModelSpec:
    layers = {
        "embedding": {"kind": "embedding"},
        "mlp": {"kind": "mlp", "intermediate_size": 8},
        "head": {"kind": "head"},
    }
    return ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": WIDTH,
            "vocabulary_size": ROWS,
            "tied_embeddings": tied,
            "layer": {name: each for name, each in layers.items() if name in pattern.split()},
            "pattern": pattern,
        }
    )


MODEL = model_of()


def cost(layer: str, scale: int, parameters: int, output_bytes: int) -> LayerCost:
    return LayerCost(
        layer=layer,
        microbatch_size=2,
        sequence_length=TOKENS // 2,
        forward_ns=100 * scale,
        backward_ns=200 * scale,
        input_grad_ns=100 * scale,
        weight_grad_ns=100 * scale,
        recompute_ns=90 * scale,
        parameter_bytes=parameters * FLOAT,
        activation_bytes=3 * output_bytes,
        weight_gradient_bytes=output_bytes,
        input_bytes=X_BYTES,
        output_bytes=output_bytes,
    )


PROFILE = Profile(
    model="tiny",
    fingerprint=MODEL.fingerprint(),
    device_type="cpu",
    host="paper",
    dtype="float32",
    layers=(
        cost("embedding", 1, ROWS * WIDTH, X_BYTES),
        cost("mlp", 1, 96, X_BYTES),
        cost("head", 10, WIDTH * ROWS + WIDTH, TOKENS * ROWS * FLOAT),
    ),
    overhead_ns=7,
)


def table():
    chain = SCHEDULES["gpipe"](ScheduleShape(2, 1))
    return spread_cost_table(
        lower(spread_head(chain)),
        model=MODEL,
        layers=("embedding", "mlp", "head"),
        partition=((0, 1), (1, 3)),
        devices=[(f"local:{worker}",) for worker in range(2)],
        profile=PROFILE,
        cluster=ClusterSpec.local(2),
        job=JobSpec(global_batch_sequences=2, microbatch_size=2, sequence_length=TOKENS // 2),
    )


def of(costs, kind: Kind) -> list[int]:
    return costs.time_ns[0, :, KIND_INDEX[kind]].tolist()


def test_parts_take_their_rows_share_and_compute_the_logits_again() -> None:
    # Stages 0 and 1 without the head; 5 of 10 rows each: F 500, B 1000 and F again; the loss.
    costs = table()
    assert of(costs, Kind.F) == [107, 107, 507, 507, 7]
    assert of(costs, Kind.B) == [207, 207, 1507, 1507, 7]


def test_what_is_sent_are_activations_to_the_parts_and_two_numbers_a_token_back() -> None:
    costs = table()
    two = TOKENS * 2 * FLOAT
    assert costs.forward_bytes.tolist() == [X_BYTES, X_BYTES, two, two, 0]
    assert costs.backward_bytes.tolist() == [X_BYTES, X_BYTES, X_BYTES, X_BYTES, two]


def test_the_logits_are_on_no_worker_for_longer_than_they_are_used() -> None:
    memory = table().memory
    two = TOKENS * 2 * FLOAT
    # The last stage of the chain has the head's normalisation: its input.
    assert memory.per_stage[Resource.ACTIVATION] == (
        3 * X_BYTES, 4 * X_BYTES, X_BYTES + two, X_BYTES + two, 2 * two,
    )  # fmt: skip
    # Parameters, gradients and two states of Adam; room for the largest activation of a layer, and
    # twice for the logits of half of the rows.
    states = 4 * FLOAT
    room = 3 * X_BYTES + 2 * TOKENS * ROWS * FLOAT // 2
    half = WIDTH * ROWS // 2
    assert memory.static_bytes == (
        (ROWS * WIDTH + half) * states + room, (96 + WIDTH + half) * states + room,
    )  # fmt: skip


def test_a_profile_without_the_projection_keeps_the_rest() -> None:
    *others, head = without_projection(PROFILE, MODEL).layers
    assert tuple(others) == PROFILE.layers[:2]
    assert (head.forward_ns, head.backward_ns, head.parameter_bytes) == (0, 0, WIDTH * FLOAT)
    assert head.output_bytes == X_BYTES


_TIED = (
    "its head has the matrix of the embedding, which one worker holds whole; untie them, or leave "
    "spread_head out of the job"
)
_NO_HEAD = "its last layer is no head, or not the only one; leave spread_head out of the job"


@pytest.mark.parametrize(
    ("model", "reason"),
    [(model_of(tied=True), _TIED), (model_of(pattern="embedding head mlp"), _NO_HEAD)],
)
def test_models_whose_head_stays_whole(model: ModelSpec, reason: str) -> None:
    assert cannot_spread(model) == [reason]
    assert cannot_spread(MODEL) == []
