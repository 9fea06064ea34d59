"""The worker that holds a heavy layer."""

from fractions import Fraction

from evener.planner.bounds.heavy_layer import heavy_layer_ns

HEAD = [1, 1, 10], [1, 1, 10], [0, 0, 0]


def test_the_head_waits_for_the_first_and_sends_back_the_last(make_instance):
    # head: in front 1 + 1 forward, 4 x (10 + 10) of its own, then 1 + 1 back
    assert heavy_layer_ns(make_instance(*HEAD, 3, 4)) == 2 + 80 + 2


def test_the_way_to_the_head_meets_all_workers(make_instance):
    # two messages of 5 there and two back
    assert heavy_layer_ns(make_instance(*HEAD, 3, 4, message_ns=5)) == 84 + 20


def test_only_the_first_part_of_a_cut_microbatch_is_waited_for(make_instance):
    # In front 4 + 4 forward and back as before, of which a fourth; 4 x (10 + 10) of its own.
    instance = make_instance([4, 4, 10], [4, 4, 10], [0] * 3, 3, 4, first_part=Fraction(1, 4))
    assert heavy_layer_ns(instance) == 2 + 80 + 2


def test_weight_gradients_count_without_the_way_back(make_instance):
    # head: in front 2, then 4 x (1 + 1 + 8) of its own
    assert heavy_layer_ns(make_instance([1] * 3, [1] * 3, [0, 0, 8], 3, 4)) == 2 + 40


def test_two_copies_share_a_heavy_layer(make_instance):
    # of 5 microbatches one of the two runs 3: in front 2, then 3 x (10 + 10), then 2 back
    assert heavy_layer_ns(make_instance(*HEAD, 3, 5, stage_copies=2)) == 2 + 60 + 2


def test_what_is_frozen_is_a_mean(make_instance):
    # work 10 on average over 5 microbatches; one of two copies does 25 or more of the 50
    instance = make_instance([1] * 3, [1] * 3, [0, 0, 8], 3, 5, stage_copies=2, is_frozen=True)
    assert heavy_layer_ns(instance) == 2 + 25
