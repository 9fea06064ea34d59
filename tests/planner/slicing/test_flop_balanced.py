import pytest

from evener.planner.slicing.flop_balanced import flop_balanced_slices


def test_earlier_slices_are_longer(make_work):
    # Token i costs 1 + i: 8 tokens cost 36. Two slices: the last of at most 18 has tokens 6 and 7
    # (7 + 8 = 15; with token 5 it would be 21).
    assert flop_balanced_slices(make_work(8), 2) == (6, 2)
    # Three: at most 12 leaves token 7 alone (8); of the other 28 at most 14: tokens 5 and 6 (13).
    assert flop_balanced_slices(make_work(8), 3) == (5, 2, 1)


@pytest.mark.parametrize("num_slices", [1, 2, 3, 4, 7])
def test_long_sequences_are_cut_into_equal_operations(make_work, num_slices):
    work = make_work(2_000)
    lengths = flop_balanced_slices(work, num_slices)
    assert len(lengths) == num_slices
    assert sum(lengths) == 2_000
    assert list(lengths) == sorted(lengths, reverse=True)
    ends = [sum(lengths[: place + 1]) for place in range(num_slices)]
    flops = [work.flops(end - length, length) for end, length in zip(ends, lengths, strict=True)]
    # Each is at most one token of 2000 or less from its part, the first one all of these.
    part = work.flops(0, 2_000) / num_slices
    assert max(abs(each - part) for each in flops) <= 2_000 * num_slices


def test_slices_begin_on_the_grid(make_work):
    lengths = flop_balanced_slices(make_work(100, grid=8), 4)
    assert sum(lengths) == 100
    assert all(length % 8 == 0 for length in lengths[:-1])
    # 20 tokens have 3 places to begin at: 0, 8 and 16.
    assert flop_balanced_slices(make_work(20, grid=8), 5) == (8, 8, 4)


def test_no_slice_is_empty(make_work):
    assert flop_balanced_slices(make_work(2), 5) == (1, 1)
    assert flop_balanced_slices(make_work(1), 5) == (1,)
    # Not more than leaves a token for each slice before: 3 slices of 3 tokens.
    assert flop_balanced_slices(make_work(3), 3) == (1, 1, 1)
