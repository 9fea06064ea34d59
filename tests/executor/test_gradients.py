"""Sums and norms of gradients over workers."""

from collections.abc import Callable
from math import inf, nan, sqrt
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from evener.errors import UsageError
from evener.executor.gradients import GlobalNorm, clip, start_sum
from evener.executor.parameters import Described, owners
from evener.executor.transport import Transport
from evener.testing.memory_transport import run_in_memory

Result = TypeVar("Result")
CPU = torch.device("cpu")


def parameter(gradient: list[float] | None, dtype: torch.dtype = torch.float64) -> nn.Parameter:
    made = nn.Parameter(torch.zeros(2, dtype=dtype))
    made.grad = None if gradient is None else torch.tensor(gradient, dtype=dtype)
    return made


def everywhere(function: Callable[[Transport], Result]) -> list[Result]:
    return run_in_memory(2, function)


def test_gradients_are_summed_and_those_of_nobody_stay_none() -> None:
    def work(transport: Transport) -> list[Tensor | None]:
        first = transport.worker == 0
        parameters = [
            parameter([1.0, 2.0] if first else [10.0, 20.0]),
            parameter(None),
            parameter([1.0, 1.0] if first else None, torch.float32),
        ]
        start_sum(parameters, transport, (0, 1)).wait()
        return [each.grad for each in parameters]

    for both, nobody, one in everywhere(work):
        assert both is not None
        assert both.tolist() == [11.0, 22.0]
        assert nobody is None
        assert one is not None
        assert (one.tolist(), one.dtype) == ([1.0, 1.0], torch.float32)


def test_the_norm_counts_every_parameter_once() -> None:
    def work(transport: Transport) -> float:
        held = {"shared": parameter([3.0, 0.0])}
        if transport.worker == 1:
            held["own"] = parameter([0.0, 4.0])
            held["unused"] = parameter(None)
        norm = GlobalNorm({"shared": 0, "own": 1, "unused": 1}, transport.worker)
        return norm.start(held, transport, (0, 1), CPU).norm()

    assert everywhere(work) == [5.0, 5.0]  # sqrt(3^2 + 4^2), the shared 3 once


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (5.0, [3.0 * 2 / (5 + 1e-6), 4.0 * 2 / (5 + 1e-6)]),  # scaled by max / (norm + 1e-6)
        (1.0, [3.0, 4.0]),
        (nan, [nan, nan]),
        (inf, [0.0, 0.0]),
    ],
)
def test_clipping_scales_down_only(norm: float, expected: list[float]) -> None:
    held = {"a": parameter([3.0, 4.0]), "b": parameter(None)}
    clip(held, norm, 2.0)
    assert held["a"].grad is not None
    assert held["a"].grad.tolist() == pytest.approx(expected, nan_ok=True)
    assert held["b"].grad is None


def test_clipping_equals_torch() -> None:
    ours, theirs = parameter([3.0, 4.0]), parameter([3.0, 4.0])
    clip({"a": ours}, sqrt(25.0), 1.0)
    nn.utils.clip_grad_norm_([theirs], 1.0)
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.equal(ours.grad, theirs.grad)


def test_the_lowest_worker_owns_a_parameter() -> None:
    a, b = Described.of(torch.ones(2)), Described.of(torch.zeros(3))
    assert owners([{"a": a}, {"b": b, "a": a}, {"b": b}]) == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    "other", [torch.zeros(2), torch.ones(3), torch.ones(2, dtype=torch.float64)]
)
def test_another_value_shape_or_type_is_refused(other: Tensor) -> None:
    with pytest.raises(UsageError) as caught:
        owners([{"a": Described.of(torch.ones(2))}, {}, {"a": Described.of(other)}])
    assert str(caught.value) == (
        "the workers do not start from the same model\n"
        "  a differs between workers 0 and 2; build the model from the same seed or checkpoint on "
        "every rank"
    )
