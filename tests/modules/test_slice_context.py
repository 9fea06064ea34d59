"""Layers slice by slice: the numbers of the whole sequence, forward and backward."""

import copy
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.modules.reference import build_layers
from evener.modules.slice_context import Past, SliceContext
from evener.spec.model import ModelSpec

NUM_TOKENS = 7
SIZES = ((7,), (3, 4), (1, 4, 2), (2, 1, 3, 1))
ATTENTION = {"kind": "attention", "num_heads": 4, "num_kv_heads": 2, "head_dim": 6}
LATENT = {"kv_rank": 5, "rope_head_dim": 2, "value_head_dim": 3}
KINDS: dict[str, dict[str, object]] = {
    "plain": ATTENTION,
    "with norms and biases": {**ATTENTION, "qkv_bias": True, "out_bias": True, "qk_norm": True},
    "without positions": {**ATTENTION, "rope": False},
    "latent": {**ATTENTION, "latent": LATENT},
    "narrow window": {**ATTENTION, "window": 2},
    "latent with window": {**ATTENTION, "latent": LATENT, "window": 4},
    "block": {
        "kind": "block",
        "mixer": {**ATTENTION, "window": 3},
        "feedforward": {"kind": "mlp", "intermediate_size": 5},
    },
}


def built(kind: str) -> nn.Module:
    model = ModelSpec.model_validate(
        {"name": "tiny", "hidden_size": 8, "pattern": "layer", "layer": {"layer": KINDS[kind]}}
    )
    return build_layers(model, dtype=torch.float64, seed=3)[0]


class Learned(nn.Module):
    """A user's block: learned positions, and attention written out; k and v are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(NUM_TOKENS, 8)
        self.linear = nn.Linear(8, 8)

    def forward(
        self, x: Tensor, documents: Tensor | None = None, slice_context: Any = None
    ) -> Tensor:
        first = 0 if slice_context is None else slice_context.offset
        y = x + self.positions.weight[first : first + x.shape[1]]
        keys = values = self.linear(y)
        if slice_context is not None:
            keys, values = slice_context.extended(keys, values, dim=1)
        scores = y @ keys.transpose(1, 2)
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1 + first)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values


class Changing(nn.Module):
    """A user's block that goes on to change in place what it has handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(
        self, x: Tensor, documents: Tensor | None = None, slice_context: Any = None
    ) -> Tensor:
        y = self.linear(x) * 1
        before = y.clone()
        if slice_context is not None:
            (before,) = slice_context.extended(y, dim=1)
        y.mul_(3)
        return y + before.cumsum(1)[:, -x.shape[1] :]


def hidden() -> Tensor:
    return torch.randn(2, NUM_TOKENS, 8, generator=torch.Generator().manual_seed(1)).double()


def contexts(sizes: Sequence[int]) -> list[SliceContext]:
    past = Past(sum(sizes))
    return [
        SliceContext(past, end - size, size)
        for end, size in zip(accumulate(sizes), sizes, strict=True)
    ]


def run(layer: nn.Module, sizes: Sequence[int], documents: Tensor | None) -> list[Tensor]:
    """Output, and gradients of its square's sum by input and parameters, slice by slice."""
    inputs = [part.clone().requires_grad_() for part in hidden().split(list(sizes), 1)]
    rows = [None] * len(sizes) if documents is None else documents.split(list(sizes), 1)
    passes = []
    for x, row, context in zip(inputs, rows, contexts(sizes), strict=True):
        y = layer(x, row, context)
        passes.append((y, context.close(), context))
    for y, own, context in reversed(passes):
        torch.autograd.backward([y, *own], [2 * y.detach(), *context.gradients()])
    output = torch.cat([y for y, _, _ in passes], 1)
    input_gradient = torch.cat([x.grad for x in inputs if x.grad is not None], 1)
    return [output, input_gradient, *(p.grad for p in layer.parameters() if p.grad is not None)]


def run_whole(layer: nn.Module, documents: Tensor | None) -> list[Tensor]:
    x = hidden().requires_grad_()
    y = layer(x, documents)
    y.square().sum().backward()
    assert x.grad is not None
    return [y, x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]


DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2, 3]])


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_slices_equal_the_whole(kind: str, sizes: Sequence[int]) -> None:
    for documents in (None, DOCUMENTS):
        ours, theirs = run(built(kind), sizes, documents), run_whole(built(kind), documents)
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", [Learned, Changing])
def test_a_users_block_takes_part(kind: type[nn.Module], sizes: Sequence[int]) -> None:
    torch.manual_seed(0)
    layer = kind().double()
    theirs = run_whole(copy.deepcopy(layer), None)
    for one, other in zip(run(layer, sizes, None), theirs, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["plain", "latent", "narrow window"])
def test_documents_do_not_see_one_another(kind: str) -> None:
    layer, x = built(kind), hidden()[1:]
    apart = [layer(part) for part in x.split([1, 4, 1, 1], 1)]  # the second row of DOCUMENTS
    # Rotary positions go on over documents, but only differences of positions count.
    assert torch.allclose(layer(x, DOCUMENTS[1:]), torch.cat(apart, 1), rtol=0, atol=1e-12)


def test_a_mamba_layer_refuses_documents() -> None:
    model = ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 8,
            "pattern": "mamba",
            "layer": {"mamba": {"kind": "mamba", "num_heads": 2, "head_dim": 3, "state_size": 4}},
        }
    )
    layer = build_layers(model, dtype=torch.float64)[0]
    with pytest.raises(Exception, match="a Mamba layer carries its state from one document into"):
        layer(hidden(), documents=DOCUMENTS)


def test_slices_do_not_copy_what_earlier_ones_handed_on() -> None:
    first, second = contexts((3, 4))
    (one,) = first.extended(torch.ones(2, 3, 5), dim=1)
    first.close()
    (both,) = second.extended(torch.full((2, 4, 5), 2.0), dim=1)
    assert both.data_ptr() == one.data_ptr()
    assert both[0, :, 0].tolist() == [1, 1, 1, 2, 2, 2, 2]


def test_a_recomputed_slice_finds_what_it_had_written() -> None:
    past = Past(3)
    SliceContext(past, 0, 2).extended(torch.ones(1, 2), dim=1)
    SliceContext(past, 2, 1).extended(torch.full((1, 1), 3.0), dim=1)
    (again,) = SliceContext(past, 0, 2).extended(torch.ones(1, 2), dim=1)
    assert again.tolist() == [[1.0, 1.0]]
    (last,) = SliceContext(past, 2, 1).extended(torch.full((1, 1), 3.0), dim=1)
    assert last.tolist() == [[1.0, 1.0, 3.0]]


def call_once_more(first: SliceContext, second: SliceContext) -> None:
    first.close()
    second.extended(torch.ones(1, 4), dim=1)


def call_less_often(first: SliceContext, second: SliceContext) -> None:
    first.extended(torch.ones(1, 3), dim=1)
    first.close()
    second.close()


def change(first: SliceContext, second: SliceContext) -> None:
    (given,) = first.extended(torch.ones(1, 3), dim=1)
    given.zero_()
    first.close()


def call_late(first: SliceContext, second: SliceContext) -> None:
    first.close()
    first.extended(torch.ones(1, 3), dim=1)


def name_another_dimension(first: SliceContext, second: SliceContext) -> None:
    first.extended(torch.ones(1, 3), dim=0)


@pytest.mark.parametrize(
    ("misuse", "text"),
    [
        (call_once_more, "for one slice more or less often than for another; call it for the same"),
        (call_less_often, "for one slice more or less often than for another; call it for the"),
        (change, "changes in place what slice_context.extended gave it, but other slices read"),
        (call_late, "is called after the layer's forward, as a checkpoint inside a layer does"),
        (name_another_dimension, r"shape \[1, 3\], but the slice has 3 tokens, which dimension 0"),
    ],
)
def test_misuse_is_noticed(misuse: Callable[..., None], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        misuse(*contexts((3, 4)))
