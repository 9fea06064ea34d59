"""Attention in parts is attention, and so are its gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from evener.modules.partial_attention import (
    attend_part,
    attend_slice,
    merged,
    part_gradients,
    works_in_parts,
)
from evener.profiler.memory import SavedTensors

PAST, OWN = 9, 4


def drawn(num_kv_heads: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and a gradient: 4 query heads, 4 own tokens behind 9 earlier ones."""
    torch.manual_seed(2)
    sizes = [(4, OWN), (num_kv_heads, PAST + OWN), (num_kv_heads, PAST + OWN), (4, OWN)]
    q, k, v, gradient = (torch.randn(2, *size, 6, dtype=torch.float64) for size in sizes)
    return q, k, v, gradient


def by_a_mask(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor) -> list[Tensor]:
    q, k, v = (each.clone().requires_grad_() for each in (q, k, v))
    mask = torch.ones(OWN, PAST + OWN, dtype=torch.bool).tril(PAST)
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return [out, *torch.autograd.grad(out, (q, k, v), gradient)]


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_parts_add_up(num_kv_heads: int) -> None:
    q, k, v, gradient = drawn(num_kv_heads)
    pieces = [
        (k[:, :, first:end], v[:, :, first:end], first == PAST)
        for first, end in ((0, 2), (2, PAST), (PAST, PAST + OWN))
    ]
    whole = merged([attend_part(q, *pair, causal=own) for *pair, own in pieces])
    found = [part_gradients(gradient, whole, q, *pair, causal=own) for *pair, own in pieces]
    dq, dk, dv = zip(*found, strict=True)
    ours = [whole[0], torch.stack(dq).sum(0), torch.cat(dk, 2), torch.cat(dv, 2)]
    for one, other in zip(ours, by_a_mask(q, k, v, gradient), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_a_slice_keeps_neither_mask_nor_repeated_keys(num_kv_heads: int) -> None:
    q, k, v, gradient = drawn(num_kv_heads)
    inputs = [each.clone().requires_grad_() for each in (q, k, v)]
    with SavedTensors(torch.nn.Identity()) as saved:
        out = attend_slice(*inputs)
        # Queries, keys, values, output, and one denominator for each query and head.
        sizes = [*(each.numel() for each in (q, k, v, out)), 2 * 4 * OWN]
        assert saved.num_bytes == 8 * sum(sizes)
    ours = [out, *torch.autograd.grad(out, inputs, gradient)]
    for one, other in zip(ours, by_a_mask(q, k, v, gradient), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-13)


def test_what_the_kernel_does_not_take_is_known() -> None:
    q, k, v, _ = drawn(2)
    assert works_in_parts(q, k, v)
    assert not works_in_parts(q.float(), k, v)
    assert not works_in_parts(q, k, v[..., :3])
