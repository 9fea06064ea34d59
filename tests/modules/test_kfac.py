"""K-FAC of one Linear against its definition, computed another way."""

import pytest
import torch
from torch import Tensor, nn

from evener.modules.kfac import KfacLinear, KfacOptions


def rows(count: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, dtype=torch.float64, generator=generator)


def inverse_of(mean: Tensor, damping: float) -> Tensor:
    size = len(mean)
    damped = mean + damping * mean.trace() / size * torch.eye(size, dtype=mean.dtype)
    return torch.linalg.inv(damped)


@pytest.mark.parametrize("bias", [True, False])
def test_a_gradient_is_multiplied_by_both_inverses_and_keeps_its_norm(bias: bool) -> None:
    # Two microbatches of 5 and 3 rows, the second with two axes in front; two refreshes, of which
    # the second counts a quarter.
    linear = nn.Linear(4, 3, bias=bias, dtype=torch.float64)
    kfac = KfacLinear(linear, KfacOptions(damping=0.2, decay=0.75))
    assert kfac.a is not None
    assert kfac.b is not None
    means: list[list[Tensor]] = [[], []]
    for refresh in (0, 10):
        x, dy = rows(8, 4, refresh), rows(8, 3, refresh + 1)
        kfac.save_inputs(0, x[:5])
        kfac.save_inputs(1, x[5:].view(1, 3, 4))
        kfac.save_gradients(1, dy[5:].view(1, 3, 3))
        kfac.save_gradients(0, dy[:5])
        for factor in (kfac.a, kfac.b):
            factor.add_covariance(1)
            factor.add_covariance(0)
            assert not factor.saved_NK
        kfac.refresh_a()
        kfac.refresh_b()
        inputs = torch.cat((x, torch.ones(8, 1, dtype=x.dtype)), 1) if bias else x
        # Gradients are of a mean over 8 rows: those of the single rows are 8 times as large.
        means[0].append((inputs.t() @ inputs) / 8)
        means[1].append((8 * dy).t() @ (8 * dy) / 8)
    a, b = (inverse_of(0.75 * first + 0.25 * second, 0.2) for first, second in means)

    gradient = rows(3, 5 if bias else 4, 99)
    linear.weight.grad = gradient[:, :4].clone()
    if bias:
        linear.bias.grad = gradient[:, 4].clone()
    kfac.precondition()
    expected = b @ gradient @ a
    expected *= gradient.norm() / expected.norm()
    assert torch.allclose(linear.weight.grad, expected[:, :4], rtol=1e-12)
    if bias:
        assert torch.allclose(linear.bias.grad, expected[:, 4], rtol=1e-12)


def test_without_inverses_a_gradient_is_left_alone() -> None:
    linear = nn.Linear(2, 3)
    kfac = KfacLinear(linear, KfacOptions())
    kfac.precondition()  # there is no gradient at all
    linear.weight.grad, linear.bias.grad = torch.ones(3, 2), torch.ones(3)
    kfac.save_inputs(0, torch.ones(4, 2))
    assert kfac.a is not None
    kfac.a.add_covariance(0)
    kfac.refresh_a()
    kfac.precondition()  # B is not there yet
    assert torch.equal(linear.weight.grad, torch.ones(3, 2))


def test_a_large_factor_is_taken_for_the_identity() -> None:
    linear = nn.Linear(2, 9, bias=False, dtype=torch.float64)
    kfac = KfacLinear(linear, KfacOptions(damping=0.1, largest=8))
    assert kfac.b is None
    assert kfac.a is not None
    x, gradient = rows(6, 2, 0), rows(9, 2, 1)
    kfac.save_inputs("all", x)
    kfac.save_gradients("all", rows(6, 9, 2))
    kfac.a.add_covariance("all")
    kfac.refresh_a()
    kfac.refresh_b()
    linear.weight.grad = gradient.clone()
    kfac.precondition()
    expected = gradient @ inverse_of(x.t() @ x / 6, 0.1)
    expected *= gradient.norm() / expected.norm()
    assert torch.allclose(linear.weight.grad, expected, rtol=1e-12)


def test_a_factor_of_zeros_can_be_inverted() -> None:
    linear = nn.Linear(2, 2, bias=False)
    kfac = KfacLinear(linear, KfacOptions())
    assert kfac.b is not None
    kfac.save_gradients(0, torch.zeros(3, 2))
    kfac.b.add_covariance(0)
    kfac.refresh_b()
    assert kfac.b.inverse_KK is not None
    assert kfac.b.inverse_KK.isfinite().all()
