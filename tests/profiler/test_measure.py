"""A profile has every kind of layer at every size, agrees on all workers, and can be kept."""

from pathlib import Path

import pytest
import torch
from torch import nn

from evener.cost.profile import LayerCost, Profile
from evener.errors import UsageError
from evener.modules.describe import describe
from evener.modules.layers import layer_source
from evener.profiler import MeasureOptions, measure_model
from evener.profiler import rounds as rounds_module
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec
from evener.testing.memory_transport import run_in_memory

FEW = MeasureOptions(rounds=3, warm_up_rounds=1)
TIMES = ("forward_ns", "backward_ns", "input_grad_ns", "weight_grad_ns", "recompute_ns")


@pytest.fixture
def profile(model: ModelSpec, job: JobSpec) -> Profile:
    return measure_model(model, job, [1, 2], options=FEW)


def test_every_kind_at_every_size(profile: Profile, model: ModelSpec) -> None:
    assert [(cost.microbatch_size, cost.layer) for cost in profile.layers] == [
        (size, kind) for size in (1, 2) for kind in ("embedding", "attention", "mlp", "head")
    ]
    assert {cost.sequence_length for cost in profile.layers} == {4}
    assert profile.fingerprint == model.fingerprint()
    assert (profile.model, profile.device_type, profile.dtype) == ("tiny", "cpu", "float32")
    assert "cores" in profile.host


def test_all_takes_time(profile: Profile) -> None:
    assert all(getattr(cost, name) > 0 for cost in profile.layers for name in TIMES)
    assert all(cost.spread >= 0 for cost in profile.layers)
    assert profile.step_ns_per_parameter_byte > 0


def by_kind(profile: Profile, size: int) -> dict[str, LayerCost]:
    return {cost.layer: cost for cost in profile.layers if cost.microbatch_size == size}


def test_parameter_bytes(profile: Profile) -> None:
    # 11 x 8 embedding; head the same and a norm of 8; mlp 3 x 8 x 16 and a norm; attention
    # 4 x 8 x 8 and a norm; 4 bytes each.
    found = {kind: cost.parameter_bytes for kind, cost in by_kind(profile, 2).items()}
    assert found == {"embedding": 352, "head": 384, "mlp": 1568, "attention": 1056}


def test_bytes_grow_with_the_microbatch(profile: Profile) -> None:
    small, large = by_kind(profile, 1)["mlp"], by_kind(profile, 2)["mlp"]
    # Between I and W: the input [B, 4, 8], that of the last product and three gradients of
    # outputs: 4 x (8 + 16 + 16 + 16 + 8) numbers for each sequence.
    assert small.weight_gradient_bytes == 4 * 64 * 4
    assert large.weight_gradient_bytes == 2 * small.weight_gradient_bytes
    assert large.activation_bytes == 2 * small.activation_bytes
    assert large.output_bytes == large.input_bytes == 2 * 4 * 8 * 4


def test_a_profile_comes_back_from_its_file(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "profile.json")
    assert Profile.load(tmp_path / "profile.json") == profile


def test_the_callers_random_numbers_and_threads_stay(model: ModelSpec, job: JobSpec) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    measure_model(model, job, [1], options=FEW)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_bfloat16_under_autocast(model: ModelSpec) -> None:
    job = JobSpec(sequence_length=4, dtypes={"activations": "bfloat16"})
    profile = measure_model(model, job, [1], options=FEW)
    assert profile.dtype == "bfloat16"
    # In the profile's format, half of that in float32.
    assert by_kind(profile, 1)["mlp"].parameter_bytes == 784


def test_recomputing_jobs_time_a_forward_that_keeps_nothing(model: ModelSpec) -> None:
    job = JobSpec(sequence_length=4, recompute="full")
    mlp = by_kind(measure_model(model, job, [1], options=FEW), 1)["mlp"]
    assert mlp.forward_ns > 0
    assert mlp.recompute_ns > 0
    assert mlp.activation_bytes > mlp.input_bytes


def test_progress_is_told_by_rounds(model: ModelSpec, job: JobSpec) -> None:
    told: list[tuple[int, int]] = []
    options = MeasureOptions(rounds=3, warm_up_rounds=1, progress=lambda *at: told.append(at))
    measure_model(model, job, [1], options=options)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_round_begins_after_the_budget(
    model: ModelSpec, job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = iter(range(0, 1000, 10))  # 10 s pass whenever it is read
    monkeypatch.setattr(rounds_module, "monotonic", lambda: next(clock_s))
    told: list[tuple[int, int]] = []
    options = MeasureOptions(rounds=50, budget_s=35, progress=lambda *at: told.append(at))
    measure_model(model, job, [1], options=options)
    # After 2 rounds of warm-up and the 3 that it takes, the clock is read at 10, 20, 30, 40 s.
    assert told[-2:] == [(8, 52), (52, 52)]


def test_workers_agree_on_one_profile_and_types_are_told_apart(
    model: ModelSpec, job: JobSpec
) -> None:
    types = ("fast", "slow", "fast")
    profiles = run_in_memory(
        3,
        lambda transport: measure_model(
            model,
            job,
            [1],
            options=MeasureOptions(rounds=3, warm_up_rounds=1, device_type=types[transport.worker]),
            peers=transport,
        ),
    )
    assert profiles[1:] == profiles[:1] * 2
    assert profiles[0].device_type == "fast"
    kinds = ["embedding", "attention", "mlp", "head"]
    assert [(key.device_type, key.layer) for key in profiles[0].by_key] == [
        (device_type, kind) for device_type in ("fast", "slow") for kind in kinds
    ]


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([], "no microbatch size was given; give those that the planner may choose from"),
        ([0], "microbatch size 0; give 1 or more"),
        ([2, 1, 2], "microbatch size 2 is given 2 times; give it once"),
    ],
)
def test_sizes_that_cannot_be_measured(
    model: ModelSpec, job: JobSpec, sizes: list[int], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        measure_model(model, job, sizes)
    assert caught.value.violations == (text,)


@pytest.mark.parametrize("role", ["activations", "parameters"])
def test_formats_that_the_executor_does_not_train_in(model: ModelSpec, role: str) -> None:
    job = JobSpec(dtypes={role: "float8"})
    with pytest.raises(UsageError, match=rf"dtypes\.{role} is float8"):
        measure_model(model, job, [1])


def test_own_blocks_are_measured_by_a_description_of_them(job: JobSpec) -> None:
    blocks = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 11))
    options = MeasureOptions(
        rounds=3,
        make_batch=lambda num_sequences: {
            "inputs": torch.zeros(num_sequences, 4, dtype=torch.int64),
            "targets": torch.zeros(num_sequences, 4, dtype=torch.int64),
        },
    )
    description = describe(layer_source(blocks), name="own")
    profile = measure_model(description, job, [2], source=blocks, options=options)
    assert {cost.layer: cost.output_bytes for cost in profile.layers} == {
        "Embedding": 2 * 4 * 8 * 4,
        "Linear": 2 * 4 * 8 * 4,
        "Linear_2": 2 * 4 * 11 * 4,
    }
    assert blocks[1].weight.grad is None


def test_options_out_of_range() -> None:
    with pytest.raises(UsageError) as caught:
        MeasureOptions(rounds=2, warm_up_rounds=-1, budget_s=float("nan"))
    assert caught.value.violations == (
        "2 rounds say nothing about noise; ask for 3",
        "-1 rounds of warm-up; give 0 or more",
        "a budget of nan s; give more than 0",
    )
