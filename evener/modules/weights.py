"""Weights that depend on (seed, name) alone, so that every plan starts from the same model."""

import hashlib

import torch
from torch import nn


def linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """A Linear with zero bias whose weight is left for ``draw_weights``."""
    module = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias)
    if bias:
        nn.init.zeros_(module.bias)
    return module


@torch.no_grad()
def draw_weights(module: nn.Module, *, prefix: str, seed: int) -> None:
    """Draw every matrix of ``module``: normal, std 1 / sqrt(fan in) (0.02 for embeddings).

    Each draws from a generator of its own, keyed by ``seed`` and its global name (``prefix`` plus
    its name here), always on the CPU in float64.  Vectors keep what their module set, and so do
    arrays that a model equation fixes (``log_decay``).
    """
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2 or name.endswith("log_decay"):
            continue
        digest = hashlib.sha256(f"{seed} {prefix}{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        fan_in = parameter[0].numel()
        std = 0.02 if id(parameter) in embeddings else fan_in**-0.5
        values = torch.empty(parameter.shape, dtype=torch.float64)
        parameter.copy_(values.normal_(0.0, std, generator=generator))
