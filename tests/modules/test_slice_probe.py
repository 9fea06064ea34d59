"""Layers that mix tokens without a context are found by trying; others are left in peace."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from evener.errors import UsageError
from evener.modules.slice_probe import has_doubtful_layers, require_tokenwise
from evener.modules.stage import Stage


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return functional.scaled_dot_product_attention(y, y, y, is_causal=True)


class Placed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.positions.weight[: x.shape[1]]


class Scaled(nn.Module):
    """Works in place, token by token, with an entry of the batch; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        self.calls += 1
        return x.mul_(scale).add_(1)


class Fork(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"halves": (x.tanh(), None), "signs": x.sign().long()}


class Sums(nn.Module):
    def forward(self, x: Tensor, slice_context: Any = None) -> Tensor:
        (whole,) = slice_context.extended(x, dim=1)
        return whole.cumsum(1)[:, -x.shape[1] :]


def prove(*layers: nn.Module) -> None:
    torch.manual_seed(0)
    stage = Stage(dict(enumerate(layers, start=3)), split=None)
    require_tokenwise(stage, torch.randn(2, 5, 4), {"scale": torch.rand(2, 5, 4)}, 5)


@pytest.mark.parametrize("layer", [Attends(), Placed()])
def test_layers_that_need_a_context_are_named(layer: nn.Module) -> None:
    with pytest.raises(UsageError) as caught:
        prove(nn.Linear(4, 4), layer)
    assert str(caught.value) == (
        "the model cannot be computed in slices of tokens\n"
        f"  layer 4 ({type(layer).__name__}) gives the last tokens of a slice another result "
        "without the first ones, so it mixes tokens or counts positions, but its forward takes no "
        "slice_context; give it one, or plan without slices"
    )


def test_layers_that_work_token_by_token_pass_and_are_as_before() -> None:
    scaled, dropout = Scaled(), nn.Dropout(0.5)
    prove(nn.Linear(4, 4), dropout, Sums(), scaled, nn.ReLU(inplace=True), Fork())
    assert scaled.calls == 0
    assert dropout.training
    assert not scaled._forward_hooks
    assert not scaled._forward_pre_hooks


def test_only_layers_of_a_user_without_a_context_are_doubtful() -> None:
    assert has_doubtful_layers(Stage({0: nn.Tanh()}, split=None))
    assert not has_doubtful_layers(Stage({0: Sums()}, split=None))
