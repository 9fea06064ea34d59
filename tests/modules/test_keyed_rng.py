"""The keys are the same everywhere, and a layer draws by its key alone."""

from itertools import product

import torch
from torch import nn

from evener.modules.keyed_rng import KeyedGenerators, key


def test_keys_are_what_they_were() -> None:
    # Pinned: a run must draw the same numbers after an update of Evener.
    assert key(0, 0, 0, 0) == 1195769770526638388
    assert key(1234, 7, 3, 5) == 3113876082917550611


def test_keys_differ_in_every_part_and_order() -> None:
    keys = {key(*parts) for parts in product(range(6), repeat=4)}
    assert len(keys) == 6**4
    assert all(0 <= each < 1 << 63 for each in keys)
    assert key(-1, 0, 0, 0) != key(1, 0, 0, 0)


def test_the_same_key_draws_the_same_dropout() -> None:
    generators = KeyedGenerators(torch.device("cpu"))
    dropout = nn.Dropout(0.5)
    generators.seed(key(0, 1, 2, 3))
    first = dropout(torch.ones(100))
    torch.rand(17)
    generators.seed(key(0, 1, 2, 3))
    assert torch.equal(dropout(torch.ones(100)), first)
    generators.seed(key(0, 1, 2, 4))
    assert not torch.equal(dropout(torch.ones(100)), first)


def test_the_callers_random_numbers_are_left_alone() -> None:
    generators = KeyedGenerators(torch.device("cpu"))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with generators.preserved():
        generators.seed(9)
        torch.rand(100)
    assert torch.equal(torch.rand(3), expected)
