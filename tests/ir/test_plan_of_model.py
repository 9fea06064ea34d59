"""Plans that somebody has changed by hand, beside the model that they are for."""

import pytest
from pydantic import ValidationError

from evener.errors import PlanError
from evener.ir.plan import Plan
from evener.ir.text import parse_schedule
from evener.spec.job import JobSpec
from evener.spec.layers import MlpSpec
from evener.spec.model import ModelSpec

MODEL = ModelSpec(
    name="tiny",
    hidden_size=8,
    layer_configs={"mlp": MlpSpec(intermediate_size=16)},
    pattern="3 x mlp",
)
SCHEDULE = parse_schedule("# schedule gpipe\n# stages 2\n# microbatches 1\n0F0 0B0\n1F0 1B0\n")


def planned(
    names: tuple[str, ...], *, tied: tuple[tuple[int, int], ...] = (), spread_head: bool = False
) -> Plan:
    return Plan(
        model=MODEL.name,
        model_fingerprint=MODEL.fingerprint(),
        layer_names=names,
        partition=((0, 1), (1, len(names))),
        devices=(("a",), ("b",)),
        microbatch_size=1,
        sequence_length=16,
        job=JobSpec(global_batch_sequences=1, sequence_length=16, spread_head=spread_head),
        tied=tied,
        schedule=SCHEDULE,
    )


def test_a_plan_agrees_with_its_model_layer_by_layer() -> None:
    planned(("mlp_0", "mlp_1", "mlp_2")).require_model(MODEL)
    with pytest.raises(PlanError) as caught:
        planned(("mlp_0", "other", "mlp_2"), tied=((0, 1),)).require_model(MODEL)
    assert str(caught.value) == (
        'the plan does not agree with its model "tiny"\n'
        '  layer_names[1]: is "other", but the model has "mlp_1"\n'
        "  tied: is [[0, 1]], but the model's layers make it []"
    )
    with pytest.raises(PlanError, match="layer_names: are 2, but the model has 3"):
        planned(("mlp_0", "mlp_1")).require_model(MODEL)


def test_a_spread_head_has_a_matrix_of_its_own() -> None:
    with pytest.raises(ValidationError, match="spreads the head, which needs a matrix of its own"):
        planned(("mlp_0", "mlp_1"), tied=((0, 1),), spread_head=True)
