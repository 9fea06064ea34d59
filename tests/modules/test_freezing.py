"""What freezing draws, leaves out, and saves."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from evener.modules.backward_split import Way, split_backward
from evener.modules.freezing import draw_frozen, frozen
from evener.modules.stage import Stage, as_leaves
from evener.modules.values import flatten

WAYS: list[Way | None] = [None, "store", "graph"]


def make_parameters(count: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(())) for _ in range(count)]


def drawn(count: int, share_ppm: int, **where: int) -> list[int]:
    parameters = make_parameters(count)
    place = {id(parameter): index for index, parameter in enumerate(parameters)}
    at = {"seed": 3, "step": 0, "stage": 1, "microbatch": 0, **where}
    return [place[id(each)] for each in draw_frozen(parameters, share_ppm, **at)]


@pytest.mark.parametrize("share_ppm", [0, 71_429, 500_000, 900_000, 1_000_000])
def test_on_average_a_share_is_what_it_says(share_ppm: int) -> None:
    sizes = []
    for step in range(1000):
        found = drawn(7, share_ppm, step=step)
        assert found == sorted(set(found))
        sizes.append(len(found))
    # Of 7 parameters: 0, 0.5, 3.5, 6.3 and 7; the neighbouring whole numbers in turn.
    share = 7 * share_ppm / 1e6
    assert set(sizes) <= {math.floor(share), math.ceil(share)}
    # Three standard deviations of a mean of 1000: 3 * sqrt(1/4/1000) = 0.05.
    assert sum(sizes) / 1000 == pytest.approx(share, abs=0.05)


def test_draws_repeat_and_differ_by_step_stage_and_microbatch() -> None:
    assert drawn(30, 500_000) == drawn(30, 500_000)
    others = [{"step": 1}, {"stage": 2}, {"microbatch": 1}, {"seed": 4}]
    distinct = {tuple(drawn(30, 500_000, **other)) for other in [{}, *others]}
    assert len(distinct) == 5


def test_all_parameters_are_as_likely_but_on_the_first_stage_those_in_front() -> None:
    def shares(stage: int) -> list[float]:
        counts = Counter(
            index for step in range(4000) for index in drawn(4, 250_000, stage=stage, step=step)
        )
        return [counts[index] / 4000 for index in range(4)]

    # Three standard deviations of a share of 1/4 among 4000 draws: 3 * sqrt(3/16/4000) = 0.021.
    assert shares(1) == pytest.approx([0.25] * 4, abs=0.021)
    # The odds 1, 0.7, 0.4, 0.1 sum to 2.2.
    assert shares(0) == pytest.approx([1 / 2.2, 0.7 / 2.2, 0.4 / 2.2, 0.1 / 2.2], abs=0.024)


class Net(nn.Module):
    """Linears with and without bias, a norm, and a weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.twice = nn.Linear(8, 8, bias=False)
        self.last = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x))
        return self.last(self.twice(torch.tanh(self.twice(x))))


def gradients(
    way: Way | None, choose: Callable[[list[nn.Parameter]], list[nn.Parameter]], *, first: bool
) -> tuple[dict[str, Tensor], list[Tensor], int]:
    """Of the parameters and of the inputs of a stage, and the FLOPs of the backward.

    first: whether the stage is the first, whose input needs no gradient.
    """
    torch.manual_seed(0)
    net = Net().double()
    split = None if way is None else split_backward(net, way)
    stage = Stage({0: net}, split=split)
    value, leaves = as_leaves(*flatten(torch.randn(5, 6).double()), learns=not first)
    with frozen(choose(list(stage.parameters()))):
        output = stage(value, {}, None, 0)
    assert all(parameter.requires_grad for parameter in stage.parameters())
    forward: Any = stage.begin_pass(leaves, [output], is_loss=False)
    with FlopCounterMode(display=False) as counter:
        if split is None:
            stage.backward(forward, [torch.ones_like(output)])
        else:
            deferred = stage.input_backward(forward, [torch.ones_like(output)])
            if deferred is not None:
                deferred.run()
    found = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    return found, forward.input_gradients(), counter.get_total_flops()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("indices", [[], [0], [2, 4], [4, 5, 6], [0, 1, 2, 3, 4, 5, 6]])
def test_the_rest_is_bitwise_what_it_is_without_freezing(
    way: Way | None, indices: list[int], first: bool
) -> None:
    whole, input_gradients, _ = gradients(way, lambda parameters: [], first=first)
    ours, our_input_gradients, _ = gradients(
        way, lambda parameters: [parameters[index] for index in indices], first=first
    )
    names = [name for index, name in enumerate(whole) if index not in indices]
    assert list(ours) == names
    assert all(torch.equal(ours[name], whole[name]) for name in names)
    assert len(input_gradients) == len(our_input_gradients) == (0 if first else 1)
    for our, their in zip(our_input_gradients, input_gradients, strict=True):
        assert torch.equal(our, their)


@pytest.mark.parametrize("way", WAYS)
def test_frozen_gradients_are_not_computed(way: Way | None) -> None:
    # Matrix products of 5 rows: 6x8, 8x8 twice, 8x6, each once for the input, once for the weight.
    product = 2 * 5 * (6 * 8 + 2 * 8 * 8 + 8 * 6)
    # The counter does not know the addmm_ by which the store adds the second product of ``twice``.
    uncounted = 2 * 5 * 8 * 8 if way == "store" else 0
    assert gradients(way, lambda parameters: [], first=False)[2] == 2 * product - uncounted
    assert gradients(way, lambda parameters: parameters, first=False)[2] == product
    # Without ``twice``: its two products are left out.
    flops = gradients(way, lambda parameters: [parameters[4]], first=False)[2]
    assert flops == 2 * product - 2 * 5 * 2 * 8 * 8
    # On the first stage nothing is left to do.
    assert gradients(way, lambda parameters: parameters, first=True)[2] == 0
