"""Saved tensors are counted once each, by storage, and no longer than they live."""

import torch
from torch import nn

from evener.profiler.memory import SavedTensors


def test_a_linear_keeps_its_input_and_not_its_weight() -> None:
    linear = nn.Linear(8, 16)
    x = torch.ones(2, 4, 8, requires_grad=True)
    with SavedTensors(linear) as saved:
        y = linear(x)
    assert saved.num_bytes == 2 * 4 * 8 * 4
    y.sum().backward()
    assert saved.num_bytes == 0


def test_what_two_operations_keep_counts_once() -> None:
    x = torch.ones(10, requires_grad=True)
    with SavedTensors(nn.Identity()) as saved:
        y = x * x + x.exp()
    # x (40 bytes) is kept twice by the product; exp keeps its result (40 bytes).
    assert saved.num_bytes == 40 + 40
    del y
    assert saved.num_bytes == 0


def test_a_part_keeps_its_whole_storage() -> None:
    x = torch.ones(100, dtype=torch.float64, requires_grad=True)
    with SavedTensors(nn.Identity()) as saved:
        y = x[:1].square()
    assert saved.num_bytes == 100 * 8
    del y


def test_buffers_are_there_anyway() -> None:
    module = nn.BatchNorm1d(4).eval()
    x = torch.ones(3, 4, requires_grad=True)
    with SavedTensors(module) as saved:
        y = module(x)
    assert saved.num_bytes == 3 * 4 * 4
    del y
