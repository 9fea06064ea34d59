import numpy as np
import pytest

from evener.sim.layout import number_rows


@pytest.mark.parametrize("scale", [1, 2**40])
def test_equal_rows_have_one_number_however_large_their_values(scale: int) -> None:
    rows = np.array([[3, 1, 1], [0, 2, 2], [3, 1, 1], [3, 1, 2], [0, 2, 2], [-1, 2, 2]])
    # Three columns of values up to 3 * 2^40 would need a key of more than 120 bits.
    number, example = number_rows(*(rows * scale).T)
    assert number.tolist() == [2, 1, 2, 3, 1, 0]
    assert example.tolist() == [5, 1, 0, 3]


def test_no_rows_have_no_numbers() -> None:
    number, example = number_rows(np.array([], dtype=np.int64))
    assert len(number) == len(example) == 0
