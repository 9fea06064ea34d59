"""Time of two interleaved actions, by hand and against units that really take turns."""

from itertools import product

import numpy as np
import pytest

from evener.cost.braid import braid_ns


@pytest.mark.parametrize(
    ("first", "second", "expected_ns"),
    [
        ((10, 0), (20, 0), 30),  # nothing to hide: one after the other
        ((13, 3), (13, 3), 20),  # both all-reduces hide
        ((13, 3), (10, 0), 20),  # that of F hides under W
        ((30, 25), (8, 2), 30),  # too long for the 6 beside it: 5 + 25
        ((30, 25), (28, 20), 45),  # the links are busiest: 25 + 20
    ],
)
def test_the_longest_of_four(
    first: tuple[int, int], second: tuple[int, int], expected_ns: int
) -> None:
    assert braid_ns(first[0], second[0], first[1], second[1]) == expected_ns


def test_arrays_are_taken_element_by_element() -> None:
    first, second = np.array([13, 30]), np.array([13, 8])
    assert braid_ns(first, second, np.array([3, 25]), np.array([3, 2])).tolist() == [20, 30]


def play_units_ns(first: tuple[int, int], second: tuple[int, int], num_units: int) -> int:
    """End of two actions of so many units (compute, all-reduce) on two streams, in turn."""
    compute_ns = links_ns = 0
    free_ns = [0, 0]
    for _ in range(num_units):
        for which, (unit_ns, all_reduce_ns) in enumerate((first, second)):
            compute_ns = max(compute_ns, free_ns[which]) + unit_ns
            links_ns = max(links_ns, compute_ns) + all_reduce_ns
            free_ns[which] = links_ns
    return max(compute_ns, links_ns)


@pytest.mark.parametrize("units", list(product((1, 4), (0, 1, 6), (2, 3), (0, 2, 9))))
def test_units_that_take_turns_need_that_and_one_unit_more(
    units: tuple[int, int, int, int],
) -> None:
    (compute_a, wait_a, compute_b, wait_b), n = units, 1000
    found_ns = play_units_ns((compute_a, wait_a), (compute_b, wait_b), n)
    limit_ns = braid_ns(n * (compute_a + wait_a), n * (compute_b + wait_b), n * wait_a, n * wait_b)
    assert limit_ns <= found_ns <= limit_ns + sum(units)
