"""Attention over keys in parts, whose results are merged (online softmax).

Each part gives its output and the logarithm of its softmax' denominator; the merged output is the
average weighted by the denominators.  Given the merged output and denominator, the gradients of a
part follow from that part alone (Dao, FlashAttention-2, arXiv 2307.08691, section 3.1).

So a slice sees all earlier tokens without a mask and its own with the causal one.  A mask for the
whole would be kept for the backward, in each layer, and be larger than all else at long sequences;
grouped keys and values would be repeated and kept, too.

The only user of torch's attention kernel for CPUs, which is not public but gives the denominators;
elsewhere ``attention`` masks.

Shapes: B sequences, T queries, S keys, H query heads, K key and value heads, E head width.
"""

from functools import reduce
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Part: TypeAlias = tuple[Tensor, Tensor]
"""Output [B, H, T, E] and logarithm of the denominators [B, H, T]."""

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def works_in_parts(q_BHTE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor) -> bool:
    """Whether there is a kernel for them: on CPUs, all of one type and one width."""
    return (
        q_BHTE.device.type == "cpu"
        and q_BHTE.dtype == k_BKSE.dtype == v_BKSE.dtype
        and q_BHTE.shape[-1] == k_BKSE.shape[-1] == v_BKSE.shape[-1]
    )


def attend_part(q_BHTE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, *, causal: bool) -> Part:
    """Attention to some of the keys. causal: there are as many, and query i sees keys 0 to i."""
    heads = q_BHTE.shape[1]
    q, k, v = _grouped(q_BHTE, k_BKSE, v_BKSE, causal)
    out, log_sum = _forward(q, k, v, 0.0, causal)
    return _ungrouped(out, heads), _ungrouped(log_sum.unsqueeze(-1), heads).squeeze(-1)


def merged(parts: list[Part]) -> Part:
    """Attention to the keys of all parts."""
    return reduce(_merge, parts)


def _merge(one: Part, other: Part) -> Part:
    log_sum = torch.logaddexp(one[1], other[1])
    out, more = (
        out * (each - log_sum).exp().unsqueeze(-1).to(out.dtype) for out, each in (one, other)
    )
    return out.add_(more), log_sum


def part_gradients(
    gradient: Tensor, whole: Part, q_BHTE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values by way of one part.

    gradient, whole: of the merged output; the merged output itself.
    """
    heads, kv_heads = q_BHTE.shape[1], k_BKSE.shape[1]
    q, k, v = _grouped(q_BHTE, k_BKSE, v_BKSE, causal)
    out, log_sum = whole
    rows = [gradient, out, log_sum.unsqueeze(-1)]
    if not causal:
        rows = [_folded(each, kv_heads) for each in rows]
    dq, dk, dv = _backward(rows[0], q, k, v, rows[1], rows[2].squeeze(-1), 0.0, causal)
    if causal:
        dk, dv = (each.unflatten(1, (kv_heads, -1)).sum(2) for each in (dk, dv))
    return _ungrouped(dq, heads), dk, dv


def _grouped(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """As many heads each: queries side by side where all see the same, else keys repeated."""
    kv_heads = k.shape[1]
    if not causal:
        return _folded(q, kv_heads), k, v
    times = q.shape[1] // kv_heads
    if times > 1:
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    return q, k, v


def _folded(x_BHTE: Tensor, kv_heads: int) -> Tensor:
    if x_BHTE.shape[1] == kv_heads:
        return x_BHTE
    return x_BHTE.unflatten(1, (kv_heads, -1)).flatten(2, 3)


def _ungrouped(x: Tensor, heads: int) -> Tensor:
    times = heads // x.shape[1]
    return x if times == 1 else x.unflatten(2, (times, -1)).flatten(1, 2)


def slice_parts(k_BKSE: Tensor, v_BKSE: Tensor, num_own: int) -> list[tuple[Tensor, Tensor, bool]]:
    """Keys and values of earlier tokens, if any, and of a slice; whether they are its own."""
    num_past = k_BKSE.shape[2] - num_own
    own = (k_BKSE[:, :, num_past:], v_BKSE[:, :, num_past:], True)
    if num_past == 0:
        return [own]
    return [(k_BKSE[:, :, :num_past], v_BKSE[:, :, :num_past], False), own]


class _SliceAttention(torch.autograd.Function):
    """See ``attend_slice``."""

    @staticmethod
    def forward(ctx, q_BHTE, k_BKSE, v_BKSE):
        parts = slice_parts(k_BKSE, v_BKSE, q_BHTE.shape[2])
        out_BHTE, log_sum = merged([attend_part(q_BHTE, k, v, causal=own) for k, v, own in parts])
        # Laid out as the layer behind it reads it, so that both keep the same memory.
        out_BHTE = out_BHTE.transpose(1, 2).contiguous().transpose(1, 2)
        ctx.save_for_backward(q_BHTE, k_BKSE, v_BKSE, out_BHTE, log_sum)
        return out_BHTE

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        q_BHTE, k_BKSE, v_BKSE, *whole = ctx.saved_tensors
        parts = [
            part_gradients(gradient, tuple(whole), q_BHTE, k, v, causal=own)
            for k, v, own in slice_parts(k_BKSE, v_BKSE, q_BHTE.shape[2])
        ]
        dq, dk, dv = zip(*parts, strict=True)
        return sum(dq[1:], dq[0]), torch.cat(dk, 2), torch.cat(dv, 2)


def attend_slice(q_BHTE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor) -> Tensor:
    """Causal attention [B, H, T, E] of a slice, whose own keys are the last T."""
    out_BHTE: Tensor = _SliceAttention.apply(q_BHTE, k_BKSE, v_BKSE)
    return out_BHTE
