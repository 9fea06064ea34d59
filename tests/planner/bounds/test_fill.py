"""The time in which a pipeline fills and drains."""

from fractions import Fraction

import numpy as np

from evener.planner.bounds.fill import fill_ns
from evener.planner.bounds.instance import Memory


def test_one_microbatch_keeps_one_worker_busy(make_instance):
    # F 1, I 1, W 0 on 3 layers: until 3 one of three workers is busy, and again until the end:
    # idle 2 x 3 + 2 x 3, work 6: (6 + 12) / 3.  All of the way, there and back.
    assert fill_ns(make_instance([1] * 3, [1] * 3, [0] * 3, 3, 1)) == 6


def test_equal_layers_fill_as_one_f_one_b_does(make_instance):
    # p = 4 layers, m = 8, F 1, B 2 never split: (m + p - 1)(1 + 2) = 33.
    # Idle before 3: 3 + 2 + 1; at the end twice that; work 8 x 4 x 3: (96 + 18) / 4 = 28.5.
    # 1F1B holds one layer per worker and idles more in between.
    assert fill_ns(make_instance([1] * 4, [2] * 4, [0] * 4, 4, 8)) == 29


def test_weight_gradients_hide_the_end(make_instance):
    # As above with I 1, W 1: idle at the end 6 at most, W 32: (64 + 6 + 32) / 4 = 25.5.
    # ZB-H2 reaches (3m + p - 1) = 27.
    assert fill_ns(make_instance([1] * 4, [1] * 4, [1] * 4, 4, 8)) == 26


def test_a_slow_layer_near_the_front_lets_few_through(make_instance):
    # F 1, 4, 1, 1, two microbatches, 3 workers, I = 0: layer 1 ends at 5 and 9.
    # By 7, before which the first is through: layers 2 x 1, 4 + 2, 1 and 1 of 3 x 7, idle 11; by
    # 5: 2 + 4 of 15, idle 9.  Work 14: (14 + 11) / 3.
    assert fill_ns(make_instance([1, 4, 1, 1], [0] * 4, [0] * 4, 3, 2)) == 9


def test_two_copies_let_two_through(make_instance):
    # The same with two workers for each layer: layer 1 ends twice at 5, layers 2 and 3 take two
    # more: by 7 all 14 of 21 are done.  (14 + 7) / 3.
    instance = make_instance([1, 4, 1, 1], [0] * 4, [0] * 4, 3, 2, stage_copies=2)
    assert fill_ns(instance) == 7


def test_messages_delay_all_workers_but_one(make_instance):
    # Two workers, one microbatch, F 1 + 1, message 5: the second waits 6.  Work 2: (2 + 6) / 2;
    # until 1, when layer 0 has ended, the first was busy.
    assert fill_ns(make_instance([1, 1], [0, 0], [0, 0], 2, 1, message_ns=5)) == 4 + 3


def test_what_is_begun_early_has_to_be_held(make_instance):
    # F 2 and 4, I 1 and 1, W 9 and 9, m = 4, 2 workers: work 104.  The second worker starts at 2.
    # By 6 the first microbatch is through, and both have had time for 6 + 4, which layers allow.
    # Layer 0 holds 3 bytes and layer 1 only 2, so 8 bytes allow for 4 x 4 of layer 1, and 5 bytes
    # for 2.5 x 4 = 10.  With 2 bytes it is 4, and 6 are idle.
    times = [2, 4], [1, 1], [9, 9]
    step = {
        room: fill_ns(make_instance(*times, 2, 4, memory=Memory(np.array([3, 2]), room)))
        for room in (8, 5, 2)
    }
    assert step == {8: (104 + 2) // 2, 5: (104 + 2) // 2, 2: (104 + 8) // 2}


def test_what_is_left_to_do_late_is_held_already(make_instance):
    # Read backwards: F 1, I 2 and 4, nothing may wait.  2 bytes leave 4 of I in the last 6 + 4.
    # Before, the second worker starts at 1, and 2 bytes leave 1 of F in the first 2 + 1.
    memory = Memory(np.array([3, 2]), 2)
    times = [1, 1], [2, 4], [0, 0]
    early_ns, late_ns = 1 + 2, 2 + 6
    step_ns = (4 * 8 + early_ns + late_ns + 1) // 2
    assert fill_ns(make_instance(*times, 2, 4, memory=memory)) == step_ns


def test_slices_prove_nothing(make_instance):
    instance = make_instance([1] * 3, [1] * 3, [0] * 3, 3, 1, first_part=Fraction(1, 2))
    assert fill_ns(instance) == 0
