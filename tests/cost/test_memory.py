import pytest

from evener.cost.memory import model_state_bytes, unit_bytes, working_bytes
from evener.cost.profile import LayerCost
from evener.ir.rules import Resource
from evener.spec.job import AdamSpec, DtypesSpec, JobSpec, SgdSpec


def layer(name: str, **sizes: int) -> LayerCost:
    measured = dict.fromkeys(
        ("forward_ns", "backward_ns", "input_grad_ns", "weight_grad_ns", "recompute_ns"), 0
    )
    return LayerCost(layer=name, microbatch_size=1, sequence_length=1, **measured, **sizes)


ATTENTION = layer(
    "attention", parameter_bytes=400, activation_bytes=90, weight_gradient_bytes=50,
    input_bytes=8, output_bytes=8,
)  # fmt: skip
HEAD = layer(
    "head", parameter_bytes=1000, activation_bytes=640, weight_gradient_bytes=70,
    input_bytes=8, output_bytes=4,
)  # fmt: skip

FLOAT32 = DtypesSpec()
MIXED = DtypesSpec(parameters="bfloat16", gradients="float32", optimizer="float32")
PURE = DtypesSpec(parameters="bfloat16", gradients="bfloat16", optimizer="bfloat16")


@pytest.mark.parametrize(
    ("dtypes", "optimizer", "bytes_per_parameter"),
    [
        (FLOAT32, AdamSpec(), 4 + 4 + 2 * 4),
        (FLOAT32, SgdSpec(), 4 + 4),
        (FLOAT32, SgdSpec(momentum=0.9), 4 + 4 + 4),
        (MIXED, AdamSpec(), 2 + 4 + 2 * 4 + 4),  # and a copy of the parameters
        (PURE, AdamSpec(), 2 + 2 + 2 * 2),
    ],
)
def test_model_states_per_parameter(
    dtypes: DtypesSpec, optimizer: AdamSpec | SgdSpec, bytes_per_parameter: int
) -> None:
    job = JobSpec(dtypes=dtypes, optimizer=optimizer)
    # 100 parameters, whichever format they were measured in.
    assert model_state_bytes(400, "float32", job) == 100 * bytes_per_parameter
    assert model_state_bytes(200, "bfloat16", job) == 100 * bytes_per_parameter
    assert model_state_bytes(0, "float32", job) == 0


def test_versions_and_states_that_another_worker_keeps() -> None:
    job = JobSpec(dtypes=MIXED, optimizer=AdamSpec())
    # 18 bytes per parameter. A second version is 2 more; without states and the copy it is 6.
    assert model_state_bytes(200, "bfloat16", job, num_versions=2) == 100 * 20
    assert model_state_bytes(200, "bfloat16", job, updates=False) == 100 * 6


def test_what_one_microbatch_takes() -> None:
    assert unit_bytes([ATTENTION, HEAD], recomputed=False) == {
        Resource.ACTIVATION: 90 + 640,
        Resource.OFFLOADED: 0,
        Resource.CHECKPOINT: 8,
        Resource.WEIGHT_GRADIENT: 50 + 70,
        Resource.INPUT: 8,
        Resource.OUTPUT_GRADIENT: 4,
        Resource.PARAMETERS: 1400,
    }
    assert unit_bytes([ATTENTION, HEAD], recomputed=True)[Resource.ACTIVATION] == 8


def test_every_resource_has_a_size() -> None:
    assert set(unit_bytes([HEAD], recomputed=False)) == set(Resource)


def test_working_memory_is_that_of_the_largest_backward() -> None:
    stages = [[ATTENTION, ATTENTION], [HEAD]]
    assert working_bytes(stages, recomputed=False) == 640
    # With recomputation the activations of the largest stage come back: 640 of [HEAD].
    assert working_bytes(stages, recomputed=True) == 640 + 640
    assert working_bytes([[ATTENTION] * 8], recomputed=True) == 90 + 8 * 90
    assert working_bytes([], recomputed=True) == 0


def test_more_layers_take_no_less() -> None:
    small, large = [ATTENTION], [ATTENTION, HEAD]
    for recomputed in (False, True):
        before, after = (unit_bytes(stage, recomputed=recomputed) for stage in (small, large))
        kinds = set(Resource) - {Resource.OUTPUT_GRADIENT}  # that of the last layer alone
        assert all(before[kind] <= after[kind] for kind in kinds)
        assert working_bytes([small], recomputed=recomputed) <= working_bytes(
            [large], recomputed=recomputed
        )
