"""The token loss sums over what counts."""

from math import log

import pytest
import torch

from evener.modules.loss import TokenLoss


def test_ignored_targets_do_not_count() -> None:
    microbatch = {"targets": torch.tensor([[0, -100], [2, 1]])}
    loss = TokenLoss()
    assert loss.count(microbatch) == 3
    # Equal logits of 4 tokens: each that counts costs log 4.
    assert loss.total(torch.zeros(2, 2, 4), microbatch).item() == pytest.approx(3 * log(4))


def test_names_and_ignored_index_can_be_chosen() -> None:
    loss = TokenLoss(targets="labels", ignore_index=0)
    assert loss.count({"labels": torch.tensor([0, 1, 2])}) == 2
