"""A head whose vocabulary is spread over workers: some rows of its matrix, and the loss of all.

What a part gives are two numbers per token: the logarithm of the sum of the exponentials of its
logits, and the target's logit if that is among them.  The loss of all parts and its gradient follow
from these, and the logits are computed again in the backward, not kept: they are what is too large.

Source: "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM Training",
SC 2025 (arXiv 2504.14519).  Shapes: B sequences, T tokens, D hidden size, R rows of the vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from evener.errors import UsageError
from evener.modules.loss import Loss, TokenLoss
from evener.modules.reference import Head
from evener.modules.values import Microbatch, Value


class HeadNorm(nn.Module):
    """What of a spread head stays with the last stage of the chain."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.norm = head.norm

    def forward(self, x_BTD: Tensor) -> Tensor:
        y_BTD: Tensor = self.norm(x_BTD)
        return y_BTD


class HeadPart(nn.Module):
    """Some rows of a head's matrix, and what they contribute to the loss [B, T, 2].

    rows: which.

    The parameter's name says which rows of the head's it is: ``projection.weight[0:8]``.
    """

    def __init__(self, head: Head, rows: range) -> None:
        super().__init__()
        self.rows = rows
        self.projection = nn.Module()
        own = nn.Parameter(head.projection.weight.detach()[rows.start : rows.stop].clone())
        self._name = f"weight[{rows.start}:{rows.stop}]"
        self.projection.register_parameter(self._name, own)

    def forward(self, x_BTD: Tensor, targets: Tensor) -> Tensor:
        weight_RD = self.projection.get_parameter(self._name)
        with torch.autocast(x_BTD.device.type, enabled=False):
            statistics_BT2: Tensor = _Statistics.apply(
                x_BTD.to(weight_RD.dtype), weight_RD, targets, self.rows
            )
        return statistics_BT2


class _Statistics(torch.autograd.Function):
    """See the top of the file."""

    @staticmethod
    def forward(ctx, x, weight, targets, rows):
        logits = (x @ weight.t()).to(_exact(x.dtype))
        is_here = (targets >= rows.start) & (targets < rows.stop)
        place = torch.where(is_here, targets - rows.start, 0)
        chosen = logits.gather(-1, place.unsqueeze(-1)).squeeze(-1)
        log_sum = logits.logsumexp(-1)
        ctx.save_for_backward(x, weight, log_sum, place, is_here)
        return torch.stack((log_sum, torch.where(is_here, chosen, 0)), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight, log_sum, place, is_here = ctx.saved_tensors
        dlogits = (x @ weight.t()).to(log_sum.dtype).sub_(log_sum.unsqueeze(-1)).exp_()
        dlogits.mul_(gradient[..., :1])
        of_target = torch.where(is_here, gradient[..., 1], 0)
        dlogits.scatter_add_(-1, place.unsqueeze(-1), of_target.unsqueeze(-1))
        dlogits = dlogits.to(x.dtype)
        dweight = dlogits.flatten(0, -2).t() @ x.flatten(0, -2)
        return dlogits @ weight, dweight, None, None


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True)
class SpreadTokenLoss:
    """``TokenLoss`` of what the parts of a head give, in order."""

    whole: TokenLoss

    def count(self, microbatch: Microbatch) -> int:
        return self.whole.count(microbatch)

    def total(self, output: Value, microbatch: Microbatch) -> Tensor:
        # A stage behind a single one is given its output, behind several the tuple of theirs.
        parts = output if isinstance(output, tuple) else (output,)
        statistics_PBT2 = torch.stack(parts)
        log_sum_BT = statistics_PBT2[..., 0].logsumexp(0)
        chosen_BT = statistics_PBT2[..., 1].sum(0)
        counts_BT = microbatch[self.whole.targets] != self.whole.ignore_index
        return torch.where(counts_BT, log_sum_BT - chosen_BT, 0).sum()


def spread_loss(loss: Loss) -> SpreadTokenLoss:
    """The same over a spread head. UsageError unless it is a ``TokenLoss`` of "targets"."""
    if not isinstance(loss, TokenLoss) or loss.targets != "targets":
        raise UsageError("the head cannot be spread over workers", [_other_loss(loss)])
    return SpreadTokenLoss(loss)


def head_of(name: str, layer: nn.Module) -> Head:
    """A model's last layer as a head. UsageError if it is none."""
    if not isinstance(layer, Head):
        raise UsageError("the head cannot be spread over workers", [_no_head(name, layer)])
    return layer


def _other_loss(loss: Loss) -> str:
    return (
        f'the loss is {loss}, but the parts of a head know how to make a TokenLoss of "targets"; '
        "train with it, or plan without spread_head"
    )


def _no_head(name: str, layer: nn.Module) -> str:
    return (
        f"the last layer, {name}, is a {type(layer).__name__}; a head that is described can be "
        "spread: give the model as a description, or plan without spread_head"
    )
