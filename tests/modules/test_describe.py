"""Blocks that cost the same are of one kind, and only those."""

import torch
from torch import nn

from evener.modules.describe import describe
from evener.modules.layers import layer_source
from evener.spec.model import ModelSpec


def of(*blocks: nn.Module) -> ModelSpec:
    return describe(layer_source(blocks), name="own")


def kinds(*blocks: nn.Module) -> list[str]:
    return [layer.config for layer in of(*blocks).layers]


class _Windowed(nn.Module):
    """A block with settings that its text does not show."""

    def __init__(self, layer_idx: int, window: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.window = window
        self.inner = nn.Linear(2, 2)


def test_equal_blocks_are_of_one_kind() -> None:
    model = of(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU(), nn.Tanh())
    assert model.pattern == "Linear Linear_2 Linear_2 ReLU Tanh"
    assert {name: spec.num_parameters for name, spec in model.layer_configs.items()} == {
        "Linear": 9,
        "Linear_2": 12,
        "ReLU": 0,
        "Tanh": 0,
    }


def test_the_last_block_is_a_kind_of_its_own() -> None:
    assert kinds(nn.ReLU(), nn.ReLU(), nn.ReLU()) == ["ReLU", "ReLU", "ReLU_2"]


def test_positions_do_not_make_a_kind_but_settings_do() -> None:
    found = kinds(_Windowed(0, 8), _Windowed(1, 8), _Windowed(2, 4), _Windowed(3, 8), nn.Tanh())
    assert found == ["Windowed", "Windowed", "Windowed_2", "Windowed", "Tanh"]


def test_types_rates_and_frozen_parameters_make_kinds() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    half = nn.Linear(2, 2).to(torch.bfloat16)
    found = kinds(nn.Linear(2, 2), frozen, half, nn.Dropout(0.1), nn.Dropout(0.2), nn.Tanh())
    assert found == ["Linear", "Linear_2", "Linear_3", "Dropout", "Dropout_2", "Tanh"]


class Linear_2(nn.Module):  # noqa: N801 - a name that could be taken for a numbered one
    pass


def test_names_are_told_apart() -> None:
    found = kinds(Linear_2(), nn.Linear(2, 2), nn.Linear(2, 3), nn.Tanh())
    assert found == ["Linear_2", "Linear", "Linear_3", "Tanh"]


def test_a_description_is_the_same_for_the_same_blocks() -> None:
    blocks = [nn.Linear(2, 2), nn.Tanh()]
    assert of(*blocks).fingerprint() == of(*blocks).fingerprint()
    assert of(*blocks).fingerprint() != of(nn.Linear(2, 3), nn.Tanh()).fingerprint()
