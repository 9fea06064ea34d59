"""A user's own blocks keep their names, and shared parameters are found by identity."""

import pytest
from torch import nn

from evener.errors import UsageError
from evener.modules.layers import ModuleLayers, layer_source


def test_a_sequential_keeps_its_names() -> None:
    blocks = nn.Sequential()
    blocks.add_module("embed", nn.Embedding(4, 2))
    blocks.add_module("out", nn.Linear(2, 4))
    source = layer_source(blocks)
    assert source.names == ("embed", "out")
    assert source.build([1]) == {1: blocks.out}


def test_lists_and_mappings_are_sequences_of_blocks() -> None:
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    assert ModuleLayers([a, b]).names == ("0", "1")
    assert ModuleLayers(nn.ModuleList([a, b])).names == ("0", "1")
    assert ModuleLayers({"model.layers.0": a, "model.norm": b}).names == (
        "model.layers.0",
        "model.norm",
    )


def test_a_block_that_stands_twice_is_shared_as_a_whole() -> None:
    block = nn.Linear(2, 2)
    assert ModuleLayers([block, nn.ReLU(), block]).shared == (
        ((0, "weight"), (2, "weight")),
        ((0, "bias"), (2, "bias")),
    )


def test_tied_weights_are_found_by_identity() -> None:
    embedding, head = nn.Embedding(4, 2), nn.Linear(2, 4)
    head.weight = embedding.weight
    assert ModuleLayers([embedding, head]).shared == (((0, "weight"), (1, "weight")),)


@pytest.mark.parametrize("given", [nn.Linear(2, 2), 3])
def test_anything_else_is_refused(given: object) -> None:
    with pytest.raises(UsageError) as caught:
        layer_source(given)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "the module is not a sequence of blocks\n"
        f"  got {type(given).__name__}; give its blocks in order as an nn.Sequential, a list, or a "
        'mapping from global name to block such as {"embed": ..., "layers.0": ...}'
    )
