"""A head spread over workers has the loss and the gradients of a whole one."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from evener.executor.launch import Rank, run_workers
from evener.executor.torch_transport import TorchTransport
from evener.executor.vocabulary_parallel import SpreadHead, rows_of
from evener.testing.memory_transport import run_in_memory

TOKENS, WIDTH, VOCABULARY = 6, 5, 11


def test_rows_are_spread_evenly() -> None:
    # 11 rows on 3 workers: 4, 4 and 3.
    assert rows_of(11, 3) == [range(4), range(4, 8), range(8, 11)]
    assert rows_of(4, 2) == [range(2), range(2, 4)]


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, WIDTH, generator=generator).double() * 3
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator).double()
    return x, weight, torch.tensor([0, 10, -100, 4, 5, -100])


def farthest(transport: Any) -> float:
    """The largest difference to a whole head; the last worker has the tokens."""
    x, weight, targets = drawn()
    whole, whole_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    expected = functional.cross_entropy(
        whole @ whole_weight.t(), targets, ignore_index=-100, reduction="sum"
    )
    (expected / 7).backward()
    source = transport.num_workers - 1
    rows = rows_of(VOCABULARY, transport.num_workers)[transport.worker]
    own = (x if transport.worker == source else torch.zeros_like(x)).requires_grad_()
    part = weight[rows.start : rows.stop].clone().requires_grad_()
    found = SpreadHead(transport, rows, source).loss(own, part, targets)
    (found / 7).backward()
    pairs = [(found, expected), (part.grad, whole_weight.grad[rows.start : rows.stop])]
    if transport.worker == source:
        pairs.append((own.grad, whole.grad))
    else:
        assert own.grad is None
    return max((ours - theirs).abs().max().item() for ours, theirs in pairs)


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_nothing_changes(num_workers: int) -> None:
    assert max(run_in_memory(num_workers, farthest)) <= 1e-13


@pytest.mark.dist
def test_nothing_changes_between_processes() -> None:
    def work(rank: Rank) -> float:
        transport = TorchTransport(
            rank.store, worker=rank.index, num_workers=2, pairs=[], groups=[(0, 1)]
        )
        found = farthest(transport)
        transport.close()
        return found

    assert max(run_workers(work, 2, timeout_s=30)) <= 1e-13
