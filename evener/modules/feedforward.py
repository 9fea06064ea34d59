"""Feed-forward layers: one network for all tokens, or a mixture of experts.

Shapes: B sequences, T tokens, D hidden size, N = B * T tokens in one row, K chosen experts.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from evener.modules.weights import linear
from evener.spec.layers import Activation, MlpSpec, MoeSpec

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
}


class Mlp(nn.Module):
    """Two projections with an activation between, or three with a gate (Shazeer 2020)."""

    def __init__(self, spec: MlpSpec | MoeSpec, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[spec.activation]
        self.up = linear(hidden_size, intermediate_size, bias=spec.bias)
        self.gate = linear(hidden_size, intermediate_size, bias=spec.bias) if spec.gated else None
        self.down = linear(intermediate_size, hidden_size, bias=spec.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Moe(nn.Module):
    """Mixture of experts: each token's ``top_k`` experts, weighted by renormalised router scores.

    Every expert runs on the tokens that chose it, one expert after another: plain, and no token
    is ever dropped.
    """

    def __init__(self, spec: MoeSpec, hidden_size: int) -> None:
        super().__init__()
        width = spec.latent_size or hidden_size
        self.top_k, self.router_kind = spec.top_k, spec.router
        self.router = linear(hidden_size, spec.num_experts)
        self.experts = nn.ModuleList(
            Mlp(spec, width, spec.intermediate_size) for _ in range(spec.num_experts)
        )
        self.shared = self.shared_gate = self.latent_down = self.latent_up = None
        if spec.shared_intermediate_size:
            self.shared = Mlp(spec, hidden_size, spec.shared_intermediate_size)
        if spec.shared_gate:
            self.shared_gate = linear(hidden_size, 1)
        if spec.latent_size:
            self.latent_down = linear(hidden_size, width, bias=spec.bias)
            self.latent_up = linear(width, hidden_size, bias=spec.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_ND = x_BTD.flatten(0, -2)
        scores = self.router(x_ND)
        scores = scores.softmax(-1) if self.router_kind == "softmax" else scores.sigmoid()
        weights_NK, chosen_NK = scores.topk(self.top_k, dim=-1)
        weights_NK = weights_NK / weights_NK.sum(-1, keepdim=True)
        inputs = x_ND if self.latent_down is None else self.latent_down(x_ND)
        y = torch.zeros_like(inputs)
        for index, expert in enumerate(self.experts):
            tokens, choice = torch.where(chosen_NK == index)
            results = expert(inputs[tokens]) * weights_NK[tokens, choice].unsqueeze(-1)
            y = y.index_add(0, tokens, results.to(y.dtype))
        if self.latent_up is not None:
            y = self.latent_up(y)
        if self.shared is not None:
            shared = self.shared(x_ND)
            y = y + (
                shared if self.shared_gate is None else shared * self.shared_gate(x_ND).sigmoid()
            )
        return y.view_as(x_BTD)
