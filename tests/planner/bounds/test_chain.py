"""The way of one microbatch."""

from fractions import Fraction

from evener.planner.bounds.chain import chain_ns


def test_weight_gradients_are_left_out(make_instance):
    # 1 + 2 + 3 forward, 2 + 2 + 2 back
    assert chain_ns(make_instance([1, 2, 3], [2, 2, 2], [9, 9, 9], 1, 4)) == 12


def test_every_worker_is_met_on_both_ways(make_instance):
    # 12 as above; two messages there and two back
    times = [1, 2, 3], [2, 2, 2], [9, 9, 9]
    assert chain_ns(make_instance(*times, 3, 4, message_ns=10)) == 52
    # where layers have copies, a microbatch need not meet them all
    assert chain_ns(make_instance(*times, 3, 4, message_ns=10, stage_copies=2)) == 12


def test_slices_may_overtake(make_instance):
    part = Fraction(1, 2)
    assert chain_ns(make_instance([1, 2, 3], [2, 2, 2], [9, 9, 9], 3, 4, first_part=part)) == 0
