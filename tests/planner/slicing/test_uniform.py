import pytest

from evener.planner.slicing.uniform import uniform_slices


@pytest.mark.parametrize(
    ("num_tokens", "num_slices", "lengths"),
    [(12, 4, (3, 3, 3, 3)), (14, 4, (4, 4, 3, 3)), (5, 1, (5,)), (3, 8, (1, 1, 1))],
)
def test_equal_lengths(make_work, num_tokens, num_slices, lengths):
    assert uniform_slices(make_work(num_tokens), num_slices) == lengths
