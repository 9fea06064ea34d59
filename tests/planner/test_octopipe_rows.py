"""Fixed schedules with uniform stages against the public simulator of AdaPtis (OctoPipe)."""

import pytest

from benchmarks.joint_baselines import fixed, uniform_stages
from benchmarks.octopipe_rows import problem_of, rows

EXACT_ROUNDING = 0.00012
"""Stage times there are truncated sums of floats; ours are exact."""


@pytest.mark.parametrize("number", [0, 4, 20, 32])
def test_as_in_the_public_simulator(number):
    row = list(rows())[number]
    problem = problem_of(row)
    one_f_one_b = fixed(problem, "one_f_one_b", 1).uniform
    interleaved = fixed(problem, "interleaved_one_f_one_b", 2).uniform
    assert one_f_one_b == pytest.approx(row.one_f_one_b, rel=EXACT_ROUNDING)
    assert interleaved == pytest.approx(row.interleaved, rel=EXACT_ROUNDING)


def test_embedding_and_head_are_no_layers_of_uniform_stages():
    # 56 layers in 16 stages: eight of 4, eight of 3, and one more for the embedding and the head
    partition = uniform_stages(problem_of(next(rows())), 16)
    assert [end - first for first, end in partition] == [5, *[4] * 7, *[3] * 7, 4]
