"""Workers that share attention find what each would find alone, forward and backward."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from evener.executor.context_exchange import Share, attend_together, shares
from evener.executor.launch import Rank, run_workers
from evener.executor.torch_transport import TorchTransport
from evener.modules.partial_attention import attend_slice
from evener.testing.memory_transport import run_in_memory

OWN = 3


def test_the_shortest_helps_the_longest() -> None:
    # Sorted: 3 (worker 1), 5 (worker 3), 8 (worker 2), 12 (worker 0): (12 - 3) // 2 = 4 tokens
    # from 0 to 1 and (8 - 5) // 2 = 1 from 2 to 3, which leaves 8 and 7, 7 and 6.
    assert shares((12, 3, 8, 5)) == {
        1: Share(0, 4, gives=False),
        0: Share(1, 4, gives=True),
        3: Share(2, 1, gives=False),
        2: Share(3, 1, gives=True),
    }


def test_equal_contexts_and_a_lone_one_in_the_middle_are_left_alone() -> None:
    assert shares((4, 4)) == {}
    assert set(shares((9, 6, 3))) == {0, 2}
    assert shares((6,)) == {}


def slice_of(worker: int, context_tokens: int) -> list[Tensor]:
    """Queries of 4 heads, keys and values of 2, and a gradient."""
    generator = torch.Generator().manual_seed(worker)
    sizes = [(4, OWN), (2, context_tokens), (2, context_tokens), (4, OWN)]
    return [torch.randn(2, *size, 6, generator=generator).double() for size in sizes]


def together(transport: Any, rounds: Sequence[Sequence[int]]) -> float:
    """The largest difference to the worker alone; forwards in turn, then backwards last first."""
    worker, passes, farthest = transport.worker, [], 0.0
    for context_tokens in rounds:
        *inputs, gradient = slice_of(worker, context_tokens[worker])
        leaves = [each.requires_grad_() for each in inputs]
        share = shares(context_tokens).get(worker)
        out = attend_together(*leaves, transport=transport, share=share)
        passes.append((out, leaves, gradient))
    for out, leaves, gradient in reversed(passes):
        ours = [out, *torch.autograd.grad(out, leaves, gradient)]
        alone = attend_slice(*leaves)
        theirs = [alone, *torch.autograd.grad(alone, leaves, gradient)]
        apart = [(a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)]
        farthest = max(farthest, *apart)
    transport.flush()
    return farthest


ROUNDS = ((12, 3), (3, 12), (9, 9), (4, 7), (12, 3))


@pytest.mark.parametrize("rounds", [ROUNDS, tuple((*each, 6, 5, 15) for each in ROUNDS)])
def test_nothing_changes(rounds: Sequence[Sequence[int]]) -> None:
    found = run_in_memory(len(rounds[0]), lambda transport: together(transport, rounds))
    assert max(found) <= 1e-13


@pytest.mark.dist
def test_nothing_changes_between_processes() -> None:
    def work(rank: Rank) -> float:
        transport = TorchTransport(
            rank.store,
            worker=rank.index,
            num_workers=2,
            pairs=[(0, 1), (1, 0)],
            groups=[(0, 1)],
        )
        farthest = together(transport, ROUNDS)
        transport.close()
        return farthest

    assert max(run_workers(work, 2, timeout_s=30)) <= 1e-13
