"""A head in parts has the loss and the gradients of a whole one."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from evener.errors import UsageError
from evener.modules.head_part import HeadNorm, HeadPart, SpreadTokenLoss, head_of, spread_loss
from evener.modules.loss import TokenLoss
from evener.modules.reference import Head
from evener.spec.head_rows import rows_of
from evener.spec.model import ModelSpec

WIDTH, VOCABULARY = 5, 11
MODEL = ModelSpec.model_validate(
    {
        "name": "tiny",
        "hidden_size": WIDTH,
        "vocabulary_size": VOCABULARY,
        "layer": {"head": {"kind": "head"}},
        "pattern": "head",
    }
)
TARGETS = torch.tensor([[0, 10, -100], [4, 5, -100]])


def test_rows_are_spread_evenly() -> None:
    # 11 rows in 3 parts: 4, 4 and 3.
    assert rows_of(11, 3) == [range(4), range(4, 8), range(8, 11)]
    assert rows_of(4, 2) == [range(2), range(2, 4)]


def drawn(dtype: torch.dtype) -> tuple[Head, Tensor]:
    generator = torch.Generator().manual_seed(0)
    head = Head(MODEL)
    torch.nn.init.normal_(head.projection.weight, generator=generator)
    x_BTD = torch.randn(2, 3, WIDTH, generator=generator) * 3
    return head.to(dtype), x_BTD.to(dtype).requires_grad_()


@pytest.mark.parametrize("num_parts", [1, 2, 3])
def test_nothing_changes(num_parts: int) -> None:
    head, x_BTD = drawn(torch.float64)
    parts = [HeadPart(head, rows) for rows in rows_of(VOCABULARY, num_parts)]
    microbatch = {"targets": TARGETS}
    loss, norm = TokenLoss(), HeadNorm(head)
    expected = loss.total(head(x_BTD), microbatch)
    # A loss that is scaled, as the executor's are.
    (expected / 7).backward()
    expected_dx, x_BTD.grad = x_BTD.grad, None
    dnorm, head.norm.weight.grad = head.norm.weight.grad, None
    y_BTD = norm(x_BTD)
    found = spread_loss(loss).total(tuple(part(y_BTD, TARGETS) for part in parts), microbatch)
    (found / 7).backward()
    rows = torch.cat([weight.grad for part in parts for weight in part.parameters()])
    pairs = [
        (found, expected),
        (x_BTD.grad, expected_dx),
        (rows, head.projection.weight.grad),
        (norm.norm.weight.grad, dnorm),
    ]
    assert max((ours - theirs).abs().max().item() for ours, theirs in pairs) <= 1e-13


def test_a_single_part_comes_without_a_tuple() -> None:
    """A stage behind a single one is given its output, as in a pipeline of one worker."""
    head, x_BTD = drawn(torch.float64)
    (part,) = (HeadPart(head, rows) for rows in rows_of(VOCABULARY, 1))
    alone, loss = part(HeadNorm(head)(x_BTD), TARGETS), spread_loss(TokenLoss())
    microbatch = {"targets": TARGETS}
    assert loss.total(alone, microbatch).equal(loss.total((alone,), microbatch))


def test_parameters_are_named_after_their_rows() -> None:
    head, _ = drawn(torch.float32)
    part = HeadPart(head, range(4, 8))
    ((name, weight),) = part.named_parameters()
    assert name == "projection.weight[4:8]"
    assert weight.equal(head.projection.weight[4:8])
    assert [name for name, _ in HeadNorm(head).named_parameters()] == ["norm.weight"]


def test_the_sums_of_short_numbers_are_in_long_ones() -> None:
    head, x_BTD = drawn(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        statistics = HeadPart(head, range(VOCABULARY))(x_BTD, TARGETS)
    assert statistics.dtype is torch.float32
    logits = (x_BTD @ head.projection.weight.t()).float()
    assert torch.allclose(statistics[..., 0], logits.logsumexp(-1))
    statistics.sum().backward()
    assert x_BTD.grad is not None
    assert x_BTD.grad.dtype is torch.bfloat16


class _Other:
    def count(self, microbatch: dict[str, Any]) -> int:
        return 1

    def total(self, output: Tensor, microbatch: dict[str, Any]) -> Tensor:
        return output.sum()

    def __repr__(self) -> str:
        return "Other()"


@pytest.mark.parametrize("loss", [_Other(), TokenLoss(targets="labels")])
def test_other_losses_are_refused(loss: Any) -> None:
    with pytest.raises(UsageError) as caught:
        spread_loss(loss)
    assert str(caught.value) == (
        f"the head cannot be spread over workers\n  the loss is {loss}, but the parts of a head "
        'know how to make a TokenLoss of "targets"; train with it, or plan without spread_head'
    )


def test_what_counts_is_what_counts_of_the_whole() -> None:
    loss = SpreadTokenLoss(TokenLoss())
    assert loss.count({"targets": TARGETS}) == 4
    plain = functional.cross_entropy(torch.zeros(4, 2), torch.zeros(4).long(), reduction="sum")
    parts = tuple(torch.zeros(1, 4, 2) for _ in range(2))
    # Each part has one row with the logit 0.
    found = loss.total(parts, {"targets": torch.zeros(1, 4).long()})
    assert torch.isclose(found, plain)


def test_a_block_of_a_user_is_no_head() -> None:
    with pytest.raises(UsageError, match="the last layer, 3, is a Linear; a head that is descri"):
        head_of("3", torch.nn.Linear(2, 2))
