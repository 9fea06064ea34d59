import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evener.cost.profile import LayerCost, LayerKey, LinkCost, Profile, SliceLatency
from evener.errors import ProfileError


def layer(name: str, **changes: Any) -> LayerCost:
    values = {
        "microbatch_size": 2,
        "sequence_length": 64,
        "forward_ns": 10,
        "backward_ns": 21,
        "input_grad_ns": 12,
        "weight_grad_ns": 9,
        "recompute_ns": 10,
        "parameter_bytes": 400,
        "activation_bytes": 80,
        "weight_gradient_bytes": 60,
        "input_bytes": 8,
        "output_bytes": 8,
    }
    return LayerCost(layer=name, **{**values, **changes})


def profile(*layers: LayerCost) -> Profile:
    return Profile(
        model="small",
        fingerprint="abc",
        device_type="cpu",
        host="a test",
        dtype="float32",
        layers=layers,
        links=(LinkCost(from_device="a", to_device="b", latency_ns=5, bytes_per_s=7),),
        step_ns_per_parameter_byte=0.25,
        overhead_ns=3,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.json"


def refusal(path: Path, change: dict[str, Any]) -> str:
    """What is said about a profile in which some values are replaced; None removes one."""
    values = json.loads(profile(layer("mlp"), layer("head")).model_dump_json())
    for key, value in change.items():
        target = values["layers"][0] if key in values["layers"][0] else values
        if value is None:
            del target[key]
        else:
            target[key] = value
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ProfileError) as caught:
        Profile.load(path)
    return str(caught.value).replace(str(path), "FILE")


def test_what_is_saved_is_loaded(path: Path) -> None:
    saved = profile(layer("mlp", spread=0.05), layer("head", device_type="gpu"))
    saved.save(path)
    assert Profile.load(path) == saved


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"forward_ns": float("nan")}, "layers[0].forward_ns: NaN should be a whole number"),
        ({"forward_ns": -1}, "layers[0].forward_ns: -1 should be greater than or equal to 0"),
        ({"forward_ns": 1.5}, "layers[0].forward_ns: 1.5 should be a whole number"),
        ({"forward_ns": "10"}, 'layers[0].forward_ns: "10" should be a whole number'),
        ({"forward_ns": None}, "layers[0].forward_ns: is missing and has no default"),
        ({"microbatch_size": 0}, "layers[0].microbatch_size: 0 should be greater than or equal"),
        ({"spread": float("inf")}, "layers[0].spread: Infinity should be a finite number"),
        ({"dtype": "float31"}, 'dtype: "float31" is not one of "float64", "float32", '),
        ({"modell": "x"}, 'modell: unknown key; did you mean "model"?'),
        ({"version": 2}, "version: is 2, but this Evener reads version 1; `evener measure` writes"),
        ({"layer": "head"}, 'measured more than once: layer "head" on "cpu" with microbatch size'),
    ],
)
def test_a_broken_value_is_named_with_its_place(path: Path, change: dict, said: str) -> None:
    assert f"FILE is not a profile that can be used:\n  FILE: {said}" in refusal(path, change)


def test_all_that_is_wrong_is_said_at_once(path: Path) -> None:
    text = refusal(path, {"forward_ns": -1, "input_bytes": -2, "host": None, "colour": 1})
    assert len(text.splitlines()) == 1 + 4


@pytest.mark.parametrize("content", ["", "{", "[]", "nonsense"])
def test_what_is_no_json_object_is_refused(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ProfileError, match="is not a profile that can be used"):
        Profile.load(path)


def test_a_file_that_is_not_there_says_how_to_get_one(path: Path) -> None:
    with pytest.raises(ProfileError, match=r"cannot be read: .*`evener measure` writes a profile"):
        Profile.load(path)


def test_costs_are_found_by_layer_device_and_shape() -> None:
    slow = layer("mlp", device_type="old", forward_ns=99)
    large = layer("mlp", microbatch_size=4)
    keys = [LayerKey("mlp", "old", 2, 64), LayerKey("mlp", "cpu", 4, 64)]
    assert profile(layer("mlp"), slow, large).costs_of(keys) == [slow, large]


def test_every_layer_that_was_not_measured_is_named_once() -> None:
    keys = [
        LayerKey("mlp", "cpu", 2, 64),
        LayerKey("moe", "cpu", 2, 64),
        LayerKey("moe", "cpu", 2, 64),
        LayerKey("mlp", "gpu", 2, 64),
    ]
    with pytest.raises(ProfileError) as caught:
        profile(layer("mlp")).costs_of(keys)
    assert str(caught.value) == (
        'the profile of model "small" is incomplete\n'
        '  layer "moe" on "cpu" with microbatch size 2 and sequence length 64 was not measured; '
        "measure it with `evener measure`; known: mlp\n"
        '  layer "mlp" on "gpu" with microbatch size 2 and sequence length 64 was not measured; '
        'measure it with `evener measure`; measured is: layer "mlp" on "cpu" with microbatch size '
        "2 and sequence length 64"
    )


def test_a_profile_does_not_change() -> None:
    with pytest.raises(ValidationError):
        profile(layer("mlp")).overhead_ns = 1  # type: ignore[misc]


def test_times_that_varied_much_are_called_so():
    # the head's interquartile range is 80 % of its median
    unsteady = profile(layer("mlp", spread=0.05), layer("head", spread=0.8)).unsteady
    assert unsteady == (
        "the times of head varied by 80% of their median: the machine was busy; measure again when"
        " it is not"
    )
    assert profile(layer("mlp", spread=0.05)).unsteady is None


def test_latencies_of_slices_are_found_by_what_was_measured(tmp_path: Path) -> None:
    rows = ((5, 8, 10), (4, 6), (3,))
    slices = SliceLatency(microbatch_size=2, sequence_length=64, latency_ns=rows, device_type="gpu")
    saved = profile(layer("mlp")).model_copy(update={"slice_latencies": (slices,)})
    saved.save(tmp_path / "profile.json")
    loaded = Profile.load(tmp_path / "profile.json")
    assert loaded.slice_latency("gpu", microbatch_size=2, sequence_length=64) == slices
    assert loaded.slice_latency("cpu", microbatch_size=2, sequence_length=64) is None
    assert loaded.slice_latency("gpu", microbatch_size=1, sequence_length=64) is None


def test_latencies_of_slices_are_a_triangle() -> None:
    with pytest.raises(ValidationError) as caught:
        SliceLatency(microbatch_size=2, sequence_length=64, latency_ns=((5, 8), (4, 6)))
    assert (
        "2 rows do not tell the slices of 2 equal parts of 64 tokens; give as many rows as parts, "
        "of 2 numbers and one less in each"
    ) in str(caught.value)
