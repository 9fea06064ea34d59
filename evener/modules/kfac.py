"""K-FAC for ``nn.Linear``: a gradient multiplied by the inverses of two small matrices.

Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature",
ICML 2015 (arXiv 1503.05671), section 3: of a Linear with inputs a and output gradients g the
curvature is taken to be the Kronecker product of A = E[a a'] and B = E[g g'], so that its inverse
times the gradient G is inv(B) G inv(A).

Two things differ from the paper, so that neither factor needs to know the other: the damping is
relative to the mean of the factor's own diagonal, and the result is scaled to the norm that the
gradient had, which leaves the length of a step to the optimizer.

Shapes: N rows (tokens), I inputs (one more with a bias, which is an input of 1), O outputs.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class KfacOptions:
    """damping: added to the diagonal, as a share of its mean. decay: of the running averages, per
    refresh. largest: a factor with more rows is taken for the identity.
    """

    damping: float = 0.3
    decay: float = 0.9
    largest: int = 1024


@dataclass
class Factor:
    """One of the two matrices of a Linear.

    saved_NK: rows by microbatch, waiting for their covariance. total_KK: the sum of those that
    had it, num_rows how many rows it has. mean_KK: running average over refreshes.
    inverse_KK: the newest.
    """

    options: KfacOptions
    saved_NK: dict[Hashable, Tensor] = field(default_factory=dict)
    total_KK: Tensor | None = None
    num_rows: int = 0
    mean_KK: Tensor | None = None
    inverse_KK: Tensor | None = None

    @torch.no_grad()
    def add_covariance(self, microbatch: Hashable) -> None:
        """Work off what was saved of a microbatch; it is let go."""
        rows_NK = self.saved_NK.pop(microbatch)
        if self.total_KK is None:
            self.total_KK = rows_NK.t() @ rows_NK
        else:
            self.total_KK.addmm_(rows_NK.t(), rows_NK)
        self.num_rows += rows_NK.shape[0]

    @torch.no_grad()
    def refresh(self, scale: float) -> None:
        """Average the covariances times ``scale`` into the running mean, and invert that."""
        assert self.total_KK is not None, "there is no covariance to invert"
        new_KK = self.total_KK.mul_(scale)
        self.total_KK, self.num_rows = None, 0
        decay = self.options.decay
        self.mean_KK = new_KK if self.mean_KK is None else self.mean_KK.lerp_(new_KK, 1 - decay)
        damped_KK = self.mean_KK.clone()
        diagonal_K = damped_KK.diagonal()
        # A factor of zeros, of a layer that nothing reaches, has no scale of its own.
        least = torch.finfo(damped_KK.dtype).tiny
        diagonal_K += (self.options.damping * diagonal_K.mean()).clamp_min(least)
        self.inverse_KK = torch.cholesky_inverse(torch.linalg.cholesky(damped_KK))


class KfacLinear:
    """K-FAC of one Linear whose inputs and output gradients are handed over by microbatch.

    a, b: the factors; None for one that would have more rows than ``options.largest``.
    """

    def __init__(self, linear: nn.Linear, options: KfacOptions) -> None:
        self._weight, self._bias = linear.weight, linear.bias
        num_outputs, num_inputs = linear.weight.shape
        num_inputs += linear.bias is not None
        self.a = Factor(options) if num_inputs <= options.largest else None
        self.b = Factor(options) if num_outputs <= options.largest else None

    def save_inputs(self, microbatch: Hashable, x: Tensor) -> None:
        """Keep what a forward was called with."""
        if self.a is not None:
            x_NI = x.detach().reshape(-1, x.shape[-1])
            if self._bias is not None:
                x_NI = torch.cat((x_NI, x_NI.new_ones(x_NI.shape[0], 1)), dim=1)
            self.a.saved_NK[microbatch] = x_NI

    def save_gradients(self, microbatch: Hashable, dy: Tensor) -> None:
        """Keep the gradients of what the forward returned."""
        if self.b is not None:
            self.b.saved_NK[microbatch] = dy.detach().reshape(-1, dy.shape[-1])

    def refresh_a(self) -> None:
        """Invert A, once all its covariances are there: their mean over all rows."""
        if self.a is not None:
            self.a.refresh(1 / max(1, self.a.num_rows))

    def refresh_b(self) -> None:
        """The same for B; gradients are of a mean over all rows, and B is that of single ones."""
        if self.b is not None:
            self.b.refresh(float(max(1, self.b.num_rows)))

    @torch.no_grad()
    def precondition(self) -> None:
        """Replace the gradient of weight and bias, as far as there are inverses already."""
        factors = [factor for factor in (self.a, self.b) if factor is not None]
        if self._weight.grad is None or any(factor.inverse_KK is None for factor in factors):
            return
        gradient_OI = self._weight.grad
        if self._bias is not None:
            assert self._bias.grad is not None, "weight and bias get their gradients together"
            gradient_OI = torch.cat((gradient_OI, self._bias.grad.unsqueeze(1)), dim=1)
        new_OI = gradient_OI
        if self.a is not None and self.a.inverse_KK is not None:
            new_OI = new_OI @ self.a.inverse_KK
        if self.b is not None and self.b.inverse_KK is not None:
            new_OI = self.b.inverse_KK @ new_OI
        norm = torch.linalg.vector_norm(new_OI)
        if norm > 0:
            new_OI = new_OI * (torch.linalg.vector_norm(gradient_OI) / norm)
        num_inputs = self._weight.shape[1]
        self._weight.grad.copy_(new_OI[:, :num_inputs])
        if self._bias is not None and self._bias.grad is not None:
            self._bias.grad.copy_(new_OI[:, num_inputs])
