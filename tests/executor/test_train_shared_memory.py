"""Layers that change things in place, and gradients that share memory: never a wrong number."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.errors import EvenerError
from evener.executor.train import Trainer
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action

# Two stages; a line per worker. In all of them the second microbatch's backward adds to gradients
# that the first one's created, while what the first one handed on is not used up yet.
WAYS = {
    "whole, one worker": ("0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1",),
    "split, one worker": ("0F0 0F1 1F0 1F1 1I0 1I1 0I0 0I1 1W0 1W1 0W0 0W1",),
    "split": ("0F0 0F1 0I0 0I1 0W0 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"),
    "recomputed": ("0F0 0F1 0R0 0B0 0R1 0B1", "1F0 1R0 1B0 1F1 1R1 1B1"),
}


def schedule(way: str) -> Schedule:
    workers = tuple(tuple(parse_action(each) for each in line.split()) for line in WAYS[way])
    return Schedule(way, 2, 2, workers)


class Position(nn.Module):
    """The gradient of its parameter is a view of the output's if there is one row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.position = nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.position[None]


class View(nn.Module):
    """The gradients of its input and of its parameter are views of the output's."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return (x.transpose(0, 1) + self.position.unsqueeze(1)).transpose(0, 1)


class Halve(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(0.5)


class Memory(nn.Module):
    """A Linear on a buffer that every forward overwrites."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("memory", torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.memory.copy_(x.detach())
        return self.linear(self.memory) * x


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.complex64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(self.linear(torch.view_as_complex(x.view(-1, 2, 2)))).flatten(1)


class Slope(nn.Module):
    """A layer that differentiates: its output is the slope of a network."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_() if not x.requires_grad else x
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.inner(x).sum(), x, create_graph=True)
        return slope


class Unused(nn.Module):
    """Gives its input on, next to what it makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.linear(x), x], -1)[:, 2:6]


# Per model its layers; the second stage has the last two.
MODELS: dict[str, list[Any]] = {
    "gradient shared with what is kept": [Position, nn.Tanh, Position],
    "gradient shared with what is sent": [lambda: nn.Linear(4, 4), View, View],
    "in place after a Linear": [lambda: nn.Linear(4, 4), lambda: nn.ReLU(inplace=True), Unused],
    "in place on what arrives": [lambda: nn.Linear(4, 4), Halve, Position],
    "in place on what the stage below saved": [nn.Tanh, Halve, Position],
    "in place on the batch": [Halve, Position, Position],
    "complex": [Complex, nn.Tanh, Complex],
    "differentiated twice": [lambda: nn.Linear(4, 4), Slope, nn.Tanh],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_those_of_a_plain_loop(tiny: Any, model: str, way: str) -> None:
    compare_with_a_plain_loop(tiny, MODELS[model], way)


# Two forwards before the first backward: torch itself refuses the buffer that has changed.
@pytest.mark.parametrize("way", ["split", "recomputed"])
def test_a_buffer_that_changes_may_be_the_input_of_a_linear(tiny: Any, way: str) -> None:
    compare_with_a_plain_loop(tiny, [lambda: nn.Linear(4, 4), nn.Tanh, Memory], way)


def compare_with_a_plain_loop(tiny: Any, model: list[Any], way: str) -> None:
    def make() -> list[nn.Module]:
        return [each() for each in model]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.step({"inputs": tiny.rows(2, 4)})
        return found

    plan = tiny.plan(schedule(way), ((0, 1), (1, 3)))
    ours = tiny.merged(tiny.train(plan, make, work))
    layers = tiny.seeded(make)
    theirs: dict[str, Tensor] = {}
    for row in tiny.rows(2, 4).split(1):  # one backward for each, so that nothing is added in place
        for name, gradient in tiny.whole(layers, row.clone(), count=2).items():
            theirs[name] = gradient.clone() + theirs.get(name, 0)
        nn.Sequential(*layers).zero_grad()
    tiny.assert_close(ours, theirs)


@pytest.mark.parametrize("way", WAYS)
def test_the_batch_stays_as_it_is(tiny: Any, way: str) -> None:
    rows = tiny.rows(2, 4)
    plan = tiny.plan(schedule(way), ((0, 1), (1, 2)))
    tiny.train(plan, lambda: [Halve(), Position()], lambda t: t.step({"inputs": rows}))
    assert torch.equal(rows, tiny.rows(2, 4))


@pytest.mark.parametrize("way", WAYS)
def test_statistics_are_updated_once(tiny: Any, way: str) -> None:
    def make() -> list[nn.Module]:
        return [nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        trainer.step({"inputs": tiny.rows(4, 4)})
        return (
            {
                name.removeprefix("layers.0."): buffer.clone()
                for name, buffer in trainer.model.stages[1].named_buffers()
            }
            if 1 in trainer.model.stages
            else {}
        )

    *_, ours = tiny.train(tiny.plan(schedule(way), ((0, 1), (1, 3))), make, work)
    layers = tiny.seeded(make)
    for rows in tiny.rows(4, 4).split(2):
        nn.Sequential(*layers)(rows)
    assert int(ours["num_batches_tracked"]) == 2  # one for each microbatch
    for name, theirs in layers[1].named_buffers():
        assert torch.allclose(ours[name], theirs, atol=1e-6), name


class MaskInPlace(nn.Module):
    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        return x * weights.mul_(0.5)


def test_a_batch_that_changes_cannot_be_recomputed(tiny: Any) -> None:
    batch = {"inputs": tiny.rows(2, 4), "weights": torch.ones(2, 1)}
    plan = tiny.plan(schedule("recomputed"), ((0, 1), (1, 2)))
    with pytest.raises(EvenerError, match="changes an entry of the batch in place"):
        tiny.train(plan, lambda: [nn.Linear(4, 4), MaskInPlace()], lambda t: t.step(batch))
