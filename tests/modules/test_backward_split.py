"""The graph split is exact or steps aside, and each stage gets the way that suits it."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from evener.modules.backward_split import split_backward, way_of
from evener.modules.graph_split import GraphSplit


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 3)
        self.scale = nn.Parameter(torch.ones(3, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (self.conv(x).tanh() * self.scale).transpose(1, 2)


class UsedTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((6,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).tanh() * self.scale


class DerivedUsedTwice(nn.Module):
    """What is computed from parameters alone is used twice, the parameters once."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((6,), 0.5))
        self.shift = nn.Parameter(torch.full((6,), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.scale.exp(), self.shift.exp()
        return (x * scale).tanh() * (scale * shift) + x * shift


class DerivedUsedOnce(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((6,), 0.5))
        self.shift = nn.Parameter(torch.full((6,), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        return (x * (self.scale.exp() * self.shift)).tanh()


class Views(nn.Module):
    """The gradients of the shifts are views of the output's, if the batch is one row."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.full((2, 6), 0.5))
        self.second = nn.Parameter(torch.full((2, 6), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        return (x[:1] + self.first[None]).tanh() + self.second[None]


class Beside(nn.Module):
    """An output that no input reaches, but a parameter does."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((6,), 0.5))
        self.beside = nn.Parameter(torch.full((6,), 2.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * self.scale, self.beside.square()


class Reentrant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.norm, x, use_reentrant=True)


WORLDS = {
    "convolution": Convolution,
    "used twice": UsedTwice,
    "derived used twice": DerivedUsedTwice,
    "derived used once": DerivedUsedOnce,
    "views": Views,
    "beside": Beside,
    "reentrant": Reentrant,
}


def gradients(world: str, split: bool, needs_x: bool) -> list[Tensor | None]:
    torch.manual_seed(0)
    module = WORLDS[world]().double()
    x = torch.randn(4, 2, 6, dtype=torch.float64).requires_grad_(needs_x)
    for _ in range(2):
        y = module(x)
        roots = list(y) if isinstance(y, tuple) else [y]
        grads = [torch.linspace(0, 1, root.numel()).double().view_as(root) for root in roots]
        if split:
            deferred = GraphSplit(module).input_backward(roots, grads, [x] if needs_x else [])
            deferred.run()
        else:
            torch.autograd.backward(roots, grads)
    return [parameter.grad for parameter in module.parameters()] + [x.grad]


# Torch itself gives no gradient at all behind a reentrant checkpoint whose input needs none.
CASES = [(world, True) for world in WORLDS] + [
    (world, False) for world in WORLDS if world != "reentrant"
]


@pytest.mark.parametrize(("world", "needs_x"), CASES)
def test_the_graph_split_equals_the_whole_backward(world: str, needs_x: bool) -> None:
    whole = gradients(world, split=False, needs_x=needs_x)
    ours = gradients(world, split=True, needs_x=needs_x)
    for our, their in zip(ours, whole, strict=True):
        assert (our is None) == (their is None)
        if our is not None and their is not None:
            assert (our - their).abs().max() <= 1e-12


def test_the_graph_split_defers_what_it_can() -> None:
    module = Convolution()
    x = torch.randn(4, 2, 6).requires_grad_()
    deferred = GraphSplit(module).input_backward([module(x).sum()], [None], [x])
    assert x.grad is not None
    assert module.conv.weight.grad is None
    deferred.run()
    assert module.conv.weight.grad is not None


class Stage(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)


def test_the_way_follows_where_the_parameters_are() -> None:
    # 8 * 8 + 8 in the Linear, 8 * 8 * 3 + 8 in the convolution; embeddings do not count.
    assert way_of(Stage(nn.Linear(8, 8))) == "store"
    assert way_of(Stage(nn.Linear(8, 8), nn.LayerNorm(8))) == "store"
    assert way_of(Stage(nn.Linear(8, 8), nn.Embedding(1000, 8))) == "store"
    assert way_of(Stage(nn.Linear(8, 8), nn.Conv1d(8, 8, 3))) == "graph"
    assert way_of(Stage(nn.Linear(8, 8), nn.Conv1d(8, 8, 3).requires_grad_(False))) == "store"
    assert way_of(Stage()) == "store"


def test_the_way_can_be_chosen() -> None:
    module = nn.Linear(4, 4)
    assert type(split_backward(module, "graph")) is GraphSplit
    assert type(split_backward(module)) is not GraphSplit
