from dataclasses import replace

import numpy as np

from evener.planner.bound import lower_bound
from evener.planner.bounds.sliced_chain import sliced_chain_ns


def test_the_longest_slice_goes_there_and_back(make_instance):
    whole = make_instance([4, 4, 4, 4], [4, 4, 4, 4], [4, 4, 4, 4], 4, 1, message_ns=1)
    assert sliced_chain_ns(whole) == 0
    # Two slices: one takes 2 there and 2 back in each of 4 layers, and 3 messages each way.
    halves = replace(whole, slice_way_ns=np.array([4, 4, 4, 4]))
    assert sliced_chain_ns(halves) == 4 * 4 + 2 * 3
    assert lower_bound(halves).proof == "chain"  # whole ones take longer


def test_it_is_the_bound_where_slices_are_few(make_instance):
    # 12 of work a worker, or 8 there and 8 back.
    halves = make_instance([4] * 4, [4] * 4, [4] * 4, 4, 1, first_part=0)
    found = lower_bound(replace(halves, slice_way_ns=np.array([4, 4, 4, 4])))
    assert (found.step_ns, found.proof) == (16, "sliced chain")
