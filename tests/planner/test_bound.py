"""Lower bounds on tiny chains."""

from fractions import Fraction

import numpy as np

from evener.planner.bound import (
    ChainTimes,
    chain_bound_ns,
    heavy_layer_bound_ns,
    load_bound_ns,
    pipeline_bound_ns,
)


def _chain(forward, input_, weight):
    forward_ns, input_ns, weight_ns = map(np.array, (forward, input_, weight))
    return ChainTimes(forward_ns, input_ns, forward_ns + input_ns + weight_ns)


def test_load_is_rounded_up():
    # work 3 per layer, 3 layers, 5 microbatches: 45 over 2 workers: 22.5
    chain = _chain([1, 1, 1], [1, 1, 1], [1, 1, 1])
    assert load_bound_ns(chain, num_workers=2, num_microbatches=5) == 23


def test_chain_leaves_the_weight_gradients_out():
    # 1 + 2 + 3 forward, 2 + 2 + 2 back
    assert chain_bound_ns(_chain([1, 2, 3], [2, 2, 2], [9, 9, 9])) == 12


def test_heavy_head_waits_for_the_first_and_sends_back_the_last():
    # head: in front 1 + 1 forward, 4 x (10 + 10) of its own, then 1 + 1 back
    chain = _chain([1, 1, 10], [1, 1, 10], [0, 0, 0])
    assert heavy_layer_bound_ns(chain, num_microbatches=4) == 2 + 80 + 2


def test_only_the_first_part_of_a_cut_microbatch_is_waited_for():
    # In front 4 + 4 forward and back as before, of which a fourth; 4 x (10 + 10) of its own.
    chain = _chain([4, 4, 10], [4, 4, 10], [0, 0, 0])
    part = Fraction(1, 4)
    assert heavy_layer_bound_ns(chain, num_microbatches=4, first_part=part) == 2 + 80 + 2
    # The way of a whole microbatch, 18 + 18, is no bound either: load 36, and 1 + 10 + 10 + 1.
    assert pipeline_bound_ns(chain, num_workers=3, num_microbatches=1, first_part=part) == 24


def test_heavy_weight_gradients_count_without_the_way_back():
    # head: in front 2, then 4 x (1 + 1 + 8) of its own
    chain = _chain([1, 1, 1], [1, 1, 1], [0, 0, 8])
    assert heavy_layer_bound_ns(chain, num_microbatches=4) == 2 + 40


def test_two_copies_of_a_heavy_layer_share_it():
    # of 5 microbatches one of the two runs 3: in front 2, then 3 x (10 + 10), then 2 back
    chain = _chain([1, 1, 10], [1, 1, 10], [0, 0, 0])
    assert heavy_layer_bound_ns(chain, num_microbatches=5, stage_copies=2) == 2 + 60 + 2


def test_pipeline_bound_is_the_largest():
    # load 4 x 24 / 3 = 32; chain 24; head 2 + 80 + 2 = 84
    chain = _chain([1, 1, 10], [1, 1, 10], [0, 0, 0])
    assert pipeline_bound_ns(chain, num_workers=3, num_microbatches=4) == 84
