from evener.planner.slicing.sppo import sppo_slices


def test_as_many_as_shorten_the_ramps(make_work):
    # 36 in all on 4 stages: 1 slice takes 36 x 4; (6, 2) takes 36 + 3 x 21 = 99; (5, 2, 1) takes
    # 36 + 3 x 15 = 81; the last token alone costs 8, so more than 6 slices gain nothing.
    assert sppo_slices(make_work(8), 8) == (3, 1, 1, 1, 1, 1)
    assert sppo_slices(make_work(8), 2) == (6, 2)


def test_as_few_as_short_slices_waste(make_work):
    # 100 ns for every action: 2 slices take 36 + 200 + 3 x 121, one 136 x 4 = 544, less than 599.
    assert sppo_slices(make_work(8, overhead_ns=100), 8) == (8,)


def test_one_stage_needs_no_slices(make_work):
    assert sppo_slices(make_work(8, num_stages=1, overhead_ns=1), 8) == (8,)
