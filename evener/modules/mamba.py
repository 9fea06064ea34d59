"""State-space layers, written to be read: right for every length, not fast for long ones.

Shapes: B sequences, T tokens, D hidden size, H heads, P head width, G groups, S state size.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from evener.modules.weights import linear
from evener.spec.layers import Mamba1Spec, MambaSpec


class _CausalConv(nn.Module):
    """One filter per channel over the last ``kernel`` tokens."""

    def __init__(self, num_channels: int, kernel: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_channels, 1, kernel))
        self.bias = nn.Parameter(torch.zeros(num_channels)) if bias else None

    def forward(self, x_BTC: Tensor) -> Tensor:
        channels, _, kernel = self.weight.shape
        padded = functional.pad(x_BTC.transpose(1, 2), (kernel - 1, 0))
        y = functional.conv1d(padded, self.weight, self.bias, groups=channels)
        return functional.silu(y).transpose(1, 2)


def _step_bias(count: int) -> Tensor:
    """Softplus of it spans 0.001 to 0.1 evenly in the logarithm, the papers' range of steps."""
    steps = torch.linspace(math.log(1e-3), math.log(1e-1), count, dtype=torch.float64).exp()
    return steps.expm1().log().to(torch.get_default_dtype())


class Mamba2(nn.Module):
    """Mamba-2 in its quadratic form (arXiv 2405.21060, sections 5 and 7)."""

    def __init__(self, spec: MambaSpec, hidden_size: int) -> None:
        super().__init__()
        self.heads, self.head_dim = spec.num_heads, spec.head_dim
        self.groups, self.state = spec.num_groups, spec.state_size
        self.inner = spec.num_heads * spec.head_dim
        conv = self.inner + 2 * spec.num_groups * spec.state_size
        self.in_proj = linear(hidden_size, self.inner + conv + spec.num_heads, bias=spec.bias)
        self.conv = _CausalConv(conv, spec.conv_kernel, spec.conv_bias)
        self.step_bias = nn.Parameter(_step_bias(spec.num_heads))
        self.log_decay = nn.Parameter(torch.linspace(1, 16, spec.num_heads).log())
        self.skip = nn.Parameter(torch.ones(spec.num_heads))
        self.norm = nn.RMSNorm(self.inner, eps=1e-6)
        self.out_proj = linear(self.inner, hidden_size, bias=spec.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        state_width = self.groups * self.state
        gate, mixed, step_BTH = self.in_proj(x_BTD).split(
            (self.inner, self.inner + 2 * state_width, self.heads), dim=-1
        )
        x, b, c = self.conv(mixed).split((self.inner, state_width, state_width), dim=-1)
        x_BTHP = x.unflatten(-1, (self.heads, self.head_dim))
        per_group = self.heads // self.groups
        b_BTHS = b.unflatten(-1, (self.groups, self.state)).repeat_interleave(per_group, 2)
        c_BTHS = c.unflatten(-1, (self.groups, self.state)).repeat_interleave(per_group, 2)
        step_BTH = functional.softplus(step_BTH + self.step_bias)
        decay_BHT = (-self.log_decay.exp() * step_BTH).transpose(1, 2)
        weights_BHTT = _decay_products(decay_BHT) * torch.einsum("bths,buhs->bhtu", c_BTHS, b_BTHS)
        y = torch.einsum("bhtu,buhp->bthp", weights_BHTT, x_BTHP * step_BTH.unsqueeze(-1))
        y = y + x_BTHP * self.skip.unsqueeze(-1)
        return self.out_proj(self.norm(y.flatten(2) * functional.silu(gate)))


def _decay_products(log_decay_BHT: Tensor) -> Tensor:
    """[..., t, u]: product of the decays after token u up to token t, 0 where u is later than t."""
    num_tokens = log_decay_BHT.shape[-1]
    total = log_decay_BHT.cumsum(-1)
    spans = total.unsqueeze(-1) - total.unsqueeze(-2)
    later = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=total.device).triu(1)
    return spans.masked_fill(later, -torch.inf).exp()


class Mamba1(nn.Module):
    """Mamba-1 (arXiv 2312.00752, section 3), its scan as a loop over tokens."""

    def __init__(self, spec: Mamba1Spec, hidden_size: int) -> None:
        super().__init__()
        inner, self.state, self.rank = spec.inner_size, spec.state_size, spec.step_rank
        self.in_proj = linear(hidden_size, 2 * inner, bias=spec.bias)
        self.conv = _CausalConv(inner, spec.conv_kernel, spec.conv_bias)
        self.x_proj = linear(inner, self.rank + 2 * self.state)
        self.step_norm, self.b_norm, self.c_norm = (
            nn.RMSNorm(width, eps=1e-6) if spec.inner_norm else nn.Identity()
            for width in (self.rank, self.state, self.state)
        )
        self.step_proj = linear(self.rank, inner, bias=True)
        with torch.no_grad():
            self.step_proj.bias.copy_(_step_bias(inner))
        decays = torch.arange(1, self.state + 1, dtype=torch.get_default_dtype()).log()
        self.log_decay = nn.Parameter(decays.repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out_proj = linear(inner, hidden_size, bias=spec.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x, gate = self.in_proj(x_BTD).chunk(2, dim=-1)
        x_BTC = self.conv(x)
        step, b, c = self.x_proj(x_BTC).split((self.rank, self.state, self.state), dim=-1)
        step_BTC = functional.softplus(self.step_proj(self.step_norm(step)))
        b_BTS, c_BTS = self.b_norm(b), self.c_norm(c)
        decay_BTCS = (-self.log_decay.exp() * step_BTC.unsqueeze(-1)).exp()
        inputs_BTCS = (step_BTC * x_BTC).unsqueeze(-1) * b_BTS.unsqueeze(-2)
        state_BCS = torch.zeros_like(inputs_BTCS[:, 0])
        outputs = []
        for token in range(x_BTC.shape[1]):
            state_BCS = decay_BTCS[:, token] * state_BCS + inputs_BTCS[:, token]
            outputs.append((state_BCS * c_BTS[:, token].unsqueeze(-2)).sum(-1))
        y_BTC = torch.stack(outputs, 1) + x_BTC * self.skip
        return self.out_proj(y_BTC * functional.silu(gate))
