"""Dropout of slices is that of the whole sequence, wherever it is cut."""

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from evener.modules.slice_context import Past, SliceContext
from evener.modules.sliced_dropout import SlicedDropout

X = torch.arange(1.0, 43.0).view(2, 7, 3)


def seeded(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(5)
    y: torch.Tensor = layer(x)
    return y


def two() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.2))


@pytest.mark.parametrize("sizes", [(7,), (3, 4), (1, 1, 5)])
def test_slices_drop_what_the_whole_drops(sizes: Sequence[int]) -> None:
    whole = seeded(two(), X)
    layer, past, parts, offset = two(), Past(7), [], 0
    sliced = SlicedDropout(layer)
    for part in X.split(list(sizes), 1):
        with sliced.of(SliceContext(past, offset, part.shape[1])):
            parts.append(seeded(layer, part))
        offset += part.shape[1]
    assert torch.equal(torch.cat(parts, 1), whole)
    assert torch.equal(seeded(layer, X), whole)  # without slices it is what it was


def test_evaluation_drops_nothing() -> None:
    layer = two().eval()
    with SlicedDropout(layer).of(SliceContext(Past(7), 0, 7)):
        assert torch.equal(layer(X), X)


def test_dropout_that_is_not_along_tokens_is_refused() -> None:
    layer = nn.Dropout(0.5)
    with (
        SlicedDropout(layer).of(SliceContext(Past(9), 0, 3)),
        pytest.raises(RuntimeError, match=r"of a tensor of shape \[2, 7, 3\] in a slice of 3 tok"),
    ):
        layer(X)
