"""Self-attention as the reference layers compute it.

Shapes: B sequences, T tokens, S tokens up to now (those of earlier slices included), D hidden size,
H query heads, K key and value heads, E head width.

``documents`` (an entry of the batch, [B, T]) numbers the documents that are packed into a sequence:
a token sees those of its own document alone.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from evener.modules.partial_attention import attend_slice, works_in_parts
from evener.modules.slice_context import SliceContext
from evener.modules.weights import linear
from evener.spec.layers import AttentionSpec

_ROPE_BASE = 10_000.0


def rotate(x_BHTE: Tensor, first_position: int = 0) -> Tensor:
    """Rotary position embedding (Su et al. 2021, section 3.2.2), halves paired."""
    num_tokens, width = x_BHTE.shape[-2:]
    half = width // 2
    exponents = torch.arange(half, device=x_BHTE.device, dtype=torch.float64) / half
    end = first_position + num_tokens
    positions = torch.arange(first_position, end, device=x_BHTE.device, dtype=torch.float64)
    angles = torch.outer(positions, _ROPE_BASE**-exponents)
    cos, sin = angles.cos().to(x_BHTE.dtype), angles.sin().to(x_BHTE.dtype)
    first, second, rest = x_BHTE.split((half, half, width - 2 * half), dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def visible(
    num_queries: int, num_keys: int, window: int | None, causal: bool, device: torch.device
) -> Tensor:
    """Which keys each query sees [T, S]: the last query is the last key's token.

    window: its own and the ``window - 1`` tokens before (and after); None means all.
    """
    if window is None and causal:
        every = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
        return every.tril_(num_keys - num_queries)
    keys = torch.arange(num_keys, device=device)
    back = keys[num_keys - num_queries :, None] - keys[None, :]
    reach = num_keys if window is None else window
    if causal:
        return (back >= 0) & (back < reach)
    return back.abs() < reach


class _Attend(nn.Module):
    """Softmax attention over heads, with the mask of one layer."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.why_not_sliced = None if spec.causal else "its tokens see later ones"
        self.causal = spec.causal
        self.window = spec.window

    def forward(
        self,
        q_BHTE: Tensor,
        k_BKTE: Tensor,
        v_BKTE: Tensor,
        documents_BT: Tensor | None,
        slice_context: SliceContext | None,
    ) -> Tensor:
        documents_BS = documents_BT
        if slice_context is not None:
            k_BKTE, v_BKTE = slice_context.extended(k_BKTE, v_BKTE, dim=-2)
            if documents_BT is not None:
                (documents_BS,) = slice_context.extended(documents_BT, dim=-1)
            elif self.window is None and works_in_parts(q_BHTE, k_BKTE, v_BKTE):
                return attend_slice(q_BHTE, k_BKTE, v_BKTE).transpose(1, 2).flatten(2)
        mask = None
        num_queries, num_keys = q_BHTE.shape[-2], k_BKTE.shape[-2]
        if self.window is not None and self.window < num_keys:
            # No query of the slice sees what lies further back.
            oldest = max(0, num_keys - num_queries - self.window + 1)
            k_BKTE, v_BKTE = k_BKTE[..., oldest:, :], v_BKTE[..., oldest:, :]
            documents_BS = None if documents_BS is None else documents_BS[:, oldest:]
            mask = visible(num_queries, num_keys - oldest, self.window, self.causal, q_BHTE.device)
        elif documents_BS is not None or num_queries < num_keys:
            mask = visible(num_queries, num_keys, None, self.causal, q_BHTE.device)
        if documents_BT is not None and documents_BS is not None and mask is not None:
            mask = mask & (documents_BT[:, None, :, None] == documents_BS[:, None, None, :])
        y_BHTE = functional.scaled_dot_product_attention(
            q_BHTE,
            k_BKTE,
            v_BKTE,
            attn_mask=mask,
            is_causal=self.causal and mask is None,
            enable_gqa=q_BHTE.shape[1] != k_BKTE.shape[1],
        )
        return y_BHTE.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023)."""

    def __init__(self, spec: AttentionSpec, hidden_size: int) -> None:
        super().__init__()
        width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.head_dim, self.rope = spec.head_dim, spec.rope
        self.q = linear(hidden_size, width, bias=spec.qkv_bias)
        self.k = linear(hidden_size, kv_width, bias=spec.qkv_bias)
        self.v = linear(hidden_size, kv_width, bias=spec.qkv_bias)
        self.q_norm = nn.RMSNorm(spec.head_dim, eps=1e-6) if spec.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(spec.head_dim, eps=1e-6) if spec.qk_norm else nn.Identity()
        self.attend = _Attend(spec)
        self.out = linear(width, hidden_size, bias=spec.out_bias)

    def forward(
        self,
        x_BTD: Tensor,
        documents_BT: Tensor | None = None,
        slice_context: SliceContext | None = None,
    ) -> Tensor:
        heads = (-1, self.head_dim)
        q_BHTE = self.q_norm(self.q(x_BTD).unflatten(-1, heads)).transpose(1, 2)
        k_BKTE = self.k_norm(self.k(x_BTD).unflatten(-1, heads)).transpose(1, 2)
        v_BKTE = self.v(x_BTD).unflatten(-1, heads).transpose(1, 2)
        if self.rope:
            first = 0 if slice_context is None else slice_context.offset
            q_BHTE, k_BKTE = rotate(q_BHTE, first), rotate(k_BKTE, first)
        return self.out(self.attend(q_BHTE, k_BKTE, v_BKTE, documents_BT, slice_context))


class LatentAttention(nn.Module):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    def __init__(self, spec: AttentionSpec, hidden_size: int) -> None:
        super().__init__()
        latent = spec.latent
        assert latent is not None, "without a latent spec, attention is plain"
        self.num_heads, self.rope = spec.num_heads, spec.rope
        self.head_dim, self.rope_dim = spec.head_dim, latent.rope_head_dim
        self.value_dim, self.kv_rank = latent.value_head_dim, latent.kv_rank
        query_width = spec.num_heads * (spec.head_dim + latent.rope_head_dim)
        if latent.query_rank is None:
            self.q: nn.Module = linear(hidden_size, query_width)
        else:
            self.q = nn.Sequential(
                linear(hidden_size, latent.query_rank, bias=spec.qkv_bias),
                nn.RMSNorm(latent.query_rank, eps=1e-6),
                linear(latent.query_rank, query_width),
            )
        self.kv_down = linear(
            hidden_size, latent.kv_rank + latent.rope_head_dim, bias=spec.qkv_bias
        )
        self.kv_norm = nn.RMSNorm(latent.kv_rank, eps=1e-6)
        self.kv_up = linear(latent.kv_rank, spec.num_heads * (spec.head_dim + self.value_dim))
        self.attend = _Attend(spec)
        self.out = linear(spec.num_heads * self.value_dim, hidden_size, bias=spec.out_bias)

    def forward(
        self,
        x_BTD: Tensor,
        documents_BT: Tensor | None = None,
        slice_context: SliceContext | None = None,
    ) -> Tensor:
        heads = (self.num_heads, -1)
        q_BHTE = self.q(x_BTD).unflatten(-1, heads).transpose(1, 2)
        latent_BTR, k_rope = self.kv_down(x_BTD).split((self.kv_rank, self.rope_dim), dim=-1)
        kv_BHTE = self.kv_up(self.kv_norm(latent_BTR)).unflatten(-1, heads).transpose(1, 2)
        k_plain, v_BHTE = kv_BHTE.split((self.head_dim, self.value_dim), dim=-1)
        q_plain, q_rope = q_BHTE.split((self.head_dim, self.rope_dim), dim=-1)
        k_rope = k_rope.unsqueeze(1)
        if self.rope:
            first = 0 if slice_context is None else slice_context.offset
            q_rope, k_rope = rotate(q_rope, first), rotate(k_rope, first)
        k_rope = k_rope.expand(-1, self.num_heads, -1, -1)
        q_BHTE = torch.cat((q_plain, q_rope), dim=-1)
        k_BHTE = torch.cat((k_plain, k_rope), dim=-1)
        return self.out(self.attend(q_BHTE, k_BHTE, v_BHTE, documents_BT, slice_context))
