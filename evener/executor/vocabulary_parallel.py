"""The loss of a head whose vocabulary is spread over all workers of a pipeline (SlimPipe).

The head's logits are the largest activation of a long sequence, and the last stage alone holds
them.  Here every worker has a run of rows of the projection and computes the logits of these: the
last stage's output goes to everybody, and what comes back are three numbers per token (the largest
logit, the sum of exponentials, the target's logit).

Source: "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM Training",
SC 2025 (arXiv 2504.14519).  Shapes: N tokens, D hidden size, R rows of the vocabulary here.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from evener.executor.transport import Transport


def rows_of(vocabulary_size: int, num_workers: int) -> list[range]:
    """The rows of each worker: as even as can be, the first workers one more."""
    bounds = [-(-vocabulary_size * worker // num_workers) for worker in range(num_workers + 1)]
    return [range(first, end) for first, end in pairwise(bounds)]


@dataclass(frozen=True)
class SpreadHead:
    """Where the rows and the tokens of a head are.

    rows: of the vocabulary on this worker. source: the worker that has the tokens.
    ignore_index: targets that do not count.
    """

    transport: Transport
    rows: range
    source: int
    ignore_index: int = -100

    def loss(self, x_ND: Tensor, weight_RD: Tensor, targets_N: Tensor) -> Tensor:
        """Cross entropy summed over the tokens that count: a collective, the same on all workers.

        x_ND: the normalised output of the last stage on ``source``, on the others anything of its
            shape and type; only ``source`` gets a gradient for it.
        weight_RD: this worker's rows of the projection. targets_N: on all workers.

        All workers run the backward together and with the same gradient.
        """
        total: Tensor = _SpreadLoss.apply(x_ND, weight_RD, targets_N, self)
        return total


class _SpreadLoss(torch.autograd.Function):
    """See ``SpreadHead.loss``."""

    @staticmethod
    def forward(ctx, x, weight, targets, head):
        transport, rows = head.transport, head.rows
        everybody = tuple(range(transport.num_workers))
        x = x.clone()
        transport.broadcast(x, head.source).wait()
        logits = x @ weight.t()
        largest = logits.max(-1).values
        transport.all_reduce(everybody, largest, maximum=True).wait()
        is_here = (targets >= rows.start) & (targets < rows.stop)
        place = torch.where(is_here, targets - rows.start, 0)
        chosen = logits.gather(-1, place.unsqueeze(-1)).squeeze(-1)
        sums = torch.stack(
            ((logits - largest.unsqueeze(-1)).exp().sum(-1), torch.where(is_here, chosen, 0))
        )
        transport.all_reduce(everybody, sums).wait()
        counts = targets != head.ignore_index
        log_sum = largest + sums[0].log()
        ctx.save_for_backward(x, weight, log_sum, place, is_here & counts, counts)
        ctx.head, ctx.everybody = head, everybody
        return torch.where(counts, log_sum - sums[1], 0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight, log_sum, place, is_target, counts = ctx.saved_tensors
        # The logits again, not kept: they are what is too large.
        dlogits = (x @ weight.t()).sub_(log_sum.unsqueeze(-1)).exp_()
        dlogits.scatter_add_(-1, place.unsqueeze(-1), -is_target.to(x.dtype).unsqueeze(-1))
        dlogits.mul_((counts * gradient).unsqueeze(-1))
        dx = dlogits @ weight
        transport = ctx.head.transport
        transport.all_reduce(ctx.everybody, dx).wait()
        return dx if transport.worker == ctx.head.source else None, dlogits.t() @ x, None, None
