"""Batches from small texts."""

import pytest
import torch

from evener.errors import SpecError
from evener.executor.text_data import read_text


@pytest.fixture
def folder(tmp_path):
    # pairs: ab x 3, cd x 2, ef x 1
    (tmp_path / "b.py").write_bytes(b"cdef")
    (tmp_path / "a.py").write_bytes(b"abababc")
    (tmp_path / "not_python.txt").write_bytes(b"zzzzzz")
    return tmp_path


def test_frequent_pairs_get_their_own_token(folder):
    # "abababc" + newline + "cdef": ab ab ab c\n cd ef; ab is the most frequent
    text = read_text(folder, vocabulary_size=100)
    ab, _, _, newline, cd, ef = text.tokens_N
    assert ab == 1
    assert sorted((newline, cd, ef)) == [2, 3, 4]


def test_rare_pairs_share_token_zero(folder):
    # 2 tokens: the most frequent pair and the rest
    assert read_text(folder, vocabulary_size=2).tokens_N.tolist() == [1, 1, 1, 0, 0, 0]


def test_targets_are_the_next_tokens(folder):
    text = read_text(folder, vocabulary_size=100)
    batch = text.batch(num_sequences=5, sequence_length=3, seed=1, step=7)
    assert batch["inputs"].shape == batch["targets"].shape == (5, 3)
    assert torch.equal(batch["inputs"][:, 1:], batch["targets"][:, :-1])


def test_same_seed_and_step_same_batch(folder):
    text = read_text(folder, vocabulary_size=100)
    draw = {"num_sequences": 5, "sequence_length": 3, "seed": 1}
    assert torch.equal(text.batch(**draw, step=7)["inputs"], text.batch(**draw, step=7)["inputs"])
    assert not torch.equal(
        text.batch(**draw, step=7)["inputs"], text.batch(**draw, step=8)["inputs"]
    )


def test_short_text(folder):
    text = read_text(folder, vocabulary_size=100)
    with pytest.raises(SpecError) as caught:
        text.batch(num_sequences=1, sequence_length=6, seed=0, step=0)
    assert str(caught.value) == (
        "The text is too short\n  it has 6 tokens (pairs of bytes), one sequence needs 7; give more"
        " text or set job.sequence_length lower"
    )


def test_no_text(tmp_path):
    with pytest.raises(SpecError) as caught:
        read_text(tmp_path, vocabulary_size=100)
    assert str(caught.value) == (
        f"No text to train on\n  there is no non-empty file ending in .py below {tmp_path}; give a"
        " folder that holds some with --data"
    )
