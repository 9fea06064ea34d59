from pathlib import Path

import pytest

from evener.spec import ClusterSpec, JobSpec, ModelSpec, load_toml, num_parameters

RECIPES = Path(__file__).parents[2] / "recipes"

# As transformers 5.24 counts them when it builds the published configuration.
NUM_PARAMETERS = {
    "deepseek-v3": 671_026_404_352,
    "gemma2-9b": 9_241_705_984,
    "jamba-52b": 51_570_323_328,
    "llama3-70b": 70_553_706_496,
    "llama3-8b": 8_030_261_248,
    "mixtral-8x7b": 46_702_792_704,
    "nemotron-h-8b": 8_100_852_736,
    "qwen3-8b": 8_190_735_360,
}


@pytest.mark.parametrize(("name", "expected"), NUM_PARAMETERS.items())
def test_published_models(name: str, expected: int) -> None:
    assert num_parameters(load_toml(RECIPES / f"models/{name}.toml", ModelSpec)) == expected


@pytest.mark.parametrize(
    ("folder", "spec_type"), [("models", ModelSpec), ("clusters", ClusterSpec)]
)
def test_a_recipe_is_named_as_its_file(
    folder: str, spec_type: type[ModelSpec] | type[ClusterSpec]
) -> None:
    paths = sorted((RECIPES / folder).glob("*.toml"))
    assert paths
    for path in paths:
        assert load_toml(path, spec_type).name == path.stem


def test_jobs() -> None:
    paths = sorted((RECIPES / "jobs").glob("*.toml"))
    assert paths
    for path in paths:
        assert load_toml(path, JobSpec).num_sequences > 0


def test_order_of_nemotron() -> None:
    # huggingface.co/nvidia/Nemotron-H-8B-Base-8K: its hybrid_override_pattern.
    pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
    letters = {"M": "mamba", "*": "attention", "-": "mlp"}
    layers = load_toml(RECIPES / "models/nemotron-h-8b.toml", ModelSpec).layers
    assert [layer.kind for layer in layers[1:-1]] == [letters[letter] for letter in pattern]


def test_order_of_jamba() -> None:
    # Attention in layers 4, 12, 20, 28 of 32; experts in every second layer from 1.
    layers = load_toml(RECIPES / "models/jamba-52b.toml", ModelSpec).layers[1:-1]
    mixers = [position for position in range(32) if layers[2 * position].kind == "attention"]
    experts = [position for position in range(32) if layers[2 * position + 1].kind == "moe"]
    assert mixers == [4, 12, 20, 28]
    assert experts == list(range(1, 32, 2))


def test_the_demo_is_unequal() -> None:
    model = load_toml(RECIPES / "models/demo.toml", ModelSpec)
    sizes = [num_parameters(model, layer.spec) for layer in model.layers]
    assert max(sizes) > 10 * min(sizes)
