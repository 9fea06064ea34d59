"""SlimPipe's exchange of attention context: workers with little to attend to help those with much.

Workers of a pipeline compute slices of one length with different numbers of tokens before them, so
causal attention takes them different times.  The k-th shortest context is paired with the k-th
longest; the worker with the longer one gives half of the difference away: it sends its queries with
the oldest of its keys and values, and gets the attention to them back as output and denominator,
which are merged exactly.  In the backward it sends the merged result with its gradient, and gets
the gradients of what it gave away.

Source: "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM Training",
SC 2025 (arXiv 2504.14519).  Shapes: see ``modules.partial_attention``.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from evener.executor.transport import Transport
from evener.modules.partial_attention import (
    attend_part,
    attend_slice,
    merged,
    part_gradients,
    slice_parts,
)


class Share(NamedTuple):
    """What a worker does for its peer, or the peer for it.

    num_tokens: whose keys change hands. gives: whether this worker gives them away.
    """

    peer: int
    num_tokens: int
    gives: bool


def shares(context_tokens: Sequence[int]) -> dict[int, Share]:
    """Who helps whom, by worker; workers without a partner or a difference are left out.

    context_tokens: per worker, the tokens that its slice attends to, its own included.
    """
    by_length = sorted(range(len(context_tokens)), key=lambda worker: context_tokens[worker])
    found = {}
    for short, long in zip(by_length[: len(by_length) // 2], reversed(by_length), strict=False):
        moved = (context_tokens[long] - context_tokens[short]) // 2
        if moved:
            found[short] = Share(long, moved, gives=False)
            found[long] = Share(short, moved, gives=True)
    return found


def attend_together(
    q_BHTE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, *, transport: Transport, share: Share | None
) -> Tensor:
    """Causal attention [B, H, T, E] of a slice, some of it computed by or for the peer.

    share: this worker's of ``shares``; None computes all of it here.

    Both peers call it for slices of one shape at the same point between their messages, and run
    the backwards likewise, last call first.
    """
    if share is None:
        return attend_slice(q_BHTE, k_BKSE, v_BKSE)
    num_past = k_BKSE.shape[2] - q_BHTE.shape[2]
    assert not share.gives or share.num_tokens <= num_past, "only earlier tokens are given away"
    kind = _Given if share.gives else _Helped
    out_BHTE: Tensor = kind.apply(q_BHTE, k_BKSE, v_BKSE, transport, share)
    return out_BHTE


class _Given(torch.autograd.Function):
    """On the worker that gives the oldest keys away."""

    @staticmethod
    def forward(ctx, q, k, v, transport, share):
        n = share.num_tokens
        transport.send(share.peer, _key("keys", q, k, n), (q, k[:, :, :n], v[:, :, :n]))
        answer = transport.receive(share.peer, _key("attended", q, k, n))
        parts = [
            attend_part(q, *pair, causal=own)
            for *pair, own in slice_parts(k[:, :, n:], v[:, :, n:], q.shape[2])
        ]
        out, log_sum = merged([*parts, answer.wait()])
        ctx.save_for_backward(q, k, v, out, log_sum)
        ctx.transport, ctx.share = transport, share
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        q, k, v, *whole = ctx.saved_tensors
        transport, (peer, n, _) = ctx.transport, ctx.share
        transport.send(peer, _key("gradient", q, k, n), (gradient, *whole))
        answer = transport.receive(peer, _key("gradients", q, k, n))
        here = [
            part_gradients(gradient, tuple(whole), q, *pair, causal=own)
            for *pair, own in slice_parts(k[:, :, n:], v[:, :, n:], q.shape[2])
        ]
        dq, dk, dv = zip(answer.wait(), *here, strict=True)
        return sum(dq[1:], dq[0]), torch.cat(dk, 2), torch.cat(dv, 2), None, None


class _Helped(torch.autograd.Function):
    """On the worker that computes something for its peer besides its own slice."""

    @staticmethod
    def forward(ctx, q, k, v, transport, share):
        peer, n, _ = share
        request = transport.receive(peer, _key("keys", q, k, n))
        parts = slice_parts(k, v, q.shape[2])
        out, log_sum = merged([attend_part(q, *pair, causal=own) for *pair, own in parts])
        theirs = request.wait()
        transport.send(peer, _key("attended", q, k, n), attend_part(*theirs, causal=False))
        ctx.save_for_backward(q, k, v, out, log_sum, *theirs)
        ctx.transport, ctx.share = transport, share
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        q, k, v, out, log_sum, *theirs = ctx.saved_tensors
        transport, (peer, n, _) = ctx.transport, ctx.share
        request = transport.receive(peer, _key("gradient", q, k, n))
        here = [
            part_gradients(gradient, (out, log_sum), q, *pair, causal=own)
            for *pair, own in slice_parts(k, v, q.shape[2])
        ]
        their_gradient, *whole = request.wait()
        found = part_gradients(their_gradient, tuple(whole), *theirs, causal=False)
        transport.send(peer, _key("gradients", q, k, n), found)
        dq, dk, dv = zip(*here, strict=True)
        return sum(dq[1:], dq[0]), torch.cat(dk, 2), torch.cat(dv, 2), None, None


def _key(what: str, q: Tensor, k: Tensor, num_tokens: int) -> Hashable:
    """What the shapes of a message follow from; equal on both sides, as their slices are."""
    return "context", what, q.dtype, q.shape, k.shape[1], num_tokens
