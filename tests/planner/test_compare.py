"""Schedules side by side in worlds small enough to work out by hand. Times are in nanoseconds."""

from dataclasses import replace

import pytest

from evener.planner.compare import EqualWorld, PlannedWorld, compare
from evener.schedules import SCHEDULES, StageTimes

# 2 workers, 2 microbatches, F = I = W = 2; one microbatch takes 2 bytes of a worker.
WORLD = EqualWorld(2, 2, StageTimes(2, 2, 2))


def _entries(*names):
    return {name: SCHEDULES[name] for name in names}


def _steps(found):
    return [(schedule.entry.name, schedule.step_ns) for schedule in found.compared]


def test_fastest_first_with_the_gap_to_the_bound():
    found = compare(WORLD, chunks=(1,), schedules=_entries("gpipe", "one_f_one_b", "zb_h1"))
    # GPipe, 1F1B: (2 + 1)(2 + 4); ZB-H1: 2 x 6 + (2 + 2 - 2)
    assert _steps(found) == [("zb_h1", 14), ("gpipe", 18), ("one_f_one_b", 18)]
    # worker 1 waits for one forward, then does all its work: 2 + 2 x 6
    assert found.lower_bound_ns == 14
    assert [found.gap(row) for row in found.compared] == pytest.approx([0, 4 / 14, 4 / 14])


def test_what_a_row_says():
    (row,) = compare(WORLD, chunks=(1,), schedules=_entries("one_f_one_b")).compared
    assert row.bubbles.bubble_fraction == 6 / 18  # a worker is busy for 2 x 6 of 18
    assert row.peak_in_flight == (2, 1)
    assert row.timeline.peak_bytes == (4, 2)
    assert row.peak_bytes == 4
    # 2 activations down, 2 gradients back
    assert (row.num_messages, row.message_bytes, row.num_reduces) == (4, 0, 0)


def test_progress_counts_the_schedules_with_those_that_are_refused():
    told = []
    entries = _entries("gpipe", "zb_v", "seq1f1b")
    world = EqualWorld(2, 4, StageTimes(1, 1, 1))
    compare(world, schedules=entries, num_slices=2, progress=lambda *news: told.append(news))
    # GPipe and Seq1F1B with one stage per worker, ZB-V with two.
    assert [news[:2] for news in told] == [(1, 3), (2, 3), (3, 3)]
    assert all(news[2] is not None for news in told)


def test_a_stage_on_two_workers_costs_a_sum_of_gradients():
    (row,) = compare(WORLD, chunks=(1,), schedules=_entries("chimera")).compared
    # each microbatch starts at its own end, nobody waits: 2 x 6
    assert (row.step_ns, row.num_messages, row.num_reduces) == (12, 4, 2)


def test_a_share_is_cut_into_stages():
    found = compare(WORLD, chunks=(1, 2), schedules=_entries("interleaved_one_f_one_b"))
    # one stage of 6: (2 + 1) x 6; two of 3: (2 x 2 + 1) x 3, each with 1 byte per microbatch
    assert [(row.shape.num_stages, row.step_ns) for row in found.compared] == [(4, 15), (2, 18)]
    assert all(
        row.timeline.peak_bytes
        == tuple(count * 2 // row.shape.chunks_per_worker for count in row.peak_in_flight)
        for row in found.compared
    )
    # a piece of 3: work 24, and one worker waits for the first F of 1: 25 / 2
    assert found.lower_bound_ns == 13


def test_equal_slices_are_microbatches_for_the_bound():
    # Halves of 2 x F = I = W = 4 on 2 workers: 4 microbatches of 2. Worker 1 waits for one F of 2:
    # 2 + 4 x 6; that of worker 0 before, (2 x 2 x 12 + 2) / 2, is no more.
    world = EqualWorld(2, 2, StageTimes(4, 4, 4))
    found = compare(world, chunks=(1,), num_slices=2, schedules=_entries("seq1f1b_zb", "gpipe"))
    assert found.lower_bound_ns == 26
    assert all(row.step_ns >= 26 for row in found.compared)


def test_latency():
    found = compare(replace(WORLD, latency_ns=5), chunks=(1,), schedules=_entries("gpipe"))
    # F 0-4 | F 7-11, B 11-15, 15-19 | B 20-24, 24-28
    assert _steps(found) == [("gpipe", 28)]


def test_a_cap_refuses_what_cannot_adapt():
    found = compare(
        replace(WORLD, cap_bytes=2), chunks=(1,), schedules=_entries("gpipe", "zb_1p", "bitpipe")
    )
    # one microbatch after the other: F F I I W, 2 each, twice
    assert _steps(found) == [("zb_1p", 20)]
    assert found.compared[0].peak_bytes == 2
    over, misshapen = found.refused
    assert over.reason == "holds 2 microbatches on a worker, the cap is 1"
    assert misshapen.reason.startswith("goes down the workers and back up once")
    assert misshapen.shape.num_stages == 2


def test_a_cap_below_one_microbatch_refuses_everything():
    found = compare(replace(WORLD, cap_bytes=1), chunks=(1,))
    assert not found.compared
    plain = [entry for entry in SCHEDULES.values() if not entry.slicer and not entry.asynchronous]
    assert len(found.refused) == len(plain)


def test_every_schedule_runs_without_a_cap():
    # Three times as fine as in WORLD, so that 2 stages and 2 slices come out even.
    world = replace(
        WORLD, num_workers=4, num_microbatches=8, times=StageTimes(4, 4, 4), num_updates=2
    )
    found = compare(world, num_slices=2)
    assert {row.entry.name for row in found.compared} == set(SCHEDULES)
    assert not found.refused
    assert all(found.gap(row) >= 0 for row in found.compared)


def test_a_model_is_cut_for_each_schedule(make_problem):
    problem = make_problem([1, 1, 1, 1], num_workers=2, num_sequences=4)
    layers = tuple(
        layer.model_copy(update={"input_bytes": 10, "output_bytes": 10})
        for layer in problem.profile.layers
    )
    problem = replace(problem, profile=problem.profile.model_copy(update={"layers": layers}))
    found = compare(
        PlannedWorld(problem), chunks=(1, 2, 3), schedules=_entries("interleaved_one_f_one_b")
    )
    # stages of 2 layers: (4 + 1) x 6; of 1 layer: (2 x 4 + 1) x 3, three boundaries
    assert [(row.step_ns, row.message_bytes) for row in found.compared] == [(27, 240), (30, 80)]
    (refused,) = found.refused
    assert refused.reason == "needs 6 layers or more, the model has 4"
    assert found.lower_bound_ns == 25  # work 4 x 12, and one worker waits for the first F of 1


def test_a_model_that_does_not_fit(make_problem):
    # GPipe holds 2 microbatches of 100 bytes and 100 for the backward; the cap is 250
    problem = make_problem(
        [1, 1], num_workers=2, num_sequences=2, activation_bytes=100, memory_cap_bytes=250
    )
    found = compare(PlannedWorld(problem), chunks=(1,), schedules=_entries("gpipe", "zb_1p"))
    (refused,) = found.refused
    assert refused.reason.startswith("worker 0 holds 300 B, its cap is 250 B")
    (row,) = found.compared
    assert row.peak_bytes <= 250


@pytest.mark.parametrize("cap_bytes", [4, 6, 8])
def test_what_is_compared_is_within_the_cap(cap_bytes):
    world = replace(WORLD, num_workers=4, num_microbatches=6, cap_bytes=cap_bytes)
    assert all(row.peak_bytes <= cap_bytes for row in compare(world).compared)


def test_freezing_is_listed_beside_the_schedule_as_it_is():
    unit = 10**6
    world = EqualWorld(4, 8, StageTimes(unit, unit, unit), max_share_ppm=500_000)
    found = compare(world, chunks=(1,), schedules=_entries("one_f_one_b"))
    plain = compare(
        replace(world, max_share_ppm=None), chunks=(1,), schedules=_entries("one_f_one_b")
    )
    (row,) = found.compared
    # (8 + 3) x 3 as it is; 26 with a mean share of 0.375, and 11 x (3 - 0.375) with it everywhere.
    assert row.step_ns == 33 * unit
    assert row.frozen == pytest.approx((26 * unit, 375_000, 28.875 * unit), abs=20)
    assert found.has_freezing
    assert found.lower_bound_ns == plain.lower_bound_ns
    assert not plain.has_freezing


def test_asynchronous_schedules_are_listed_where_the_job_asks_for_them(make_problem):
    sizes = {"num_workers": 2, "num_sequences": 4}
    asked = PlannedWorld(make_problem([2, 2], **sizes, asynchronous=True, updates_per_flush=6))
    names = ("one_f_one_b", "pipedream_2bw", "amdp_2")
    found = compare(asked, chunks=(1,), schedules=_entries(*names))
    rows = {row.entry.name: row for row in found.compared}
    # Of one update: (4 + 1) x 6 with a flush; (4 x 6 + 1) x 6 / 6 without; 4 messages each way.
    assert rows["one_f_one_b"].step_ns == 30
    assert rows["pipedream_2bw"].step_ns == 25
    assert {row.num_messages for row in found.compared} == {8}
    assert found.lower_bound_ns == 24  # load: 4 x 12 / 2
    plain = compare(
        PlannedWorld(make_problem([2, 2], **sizes)), chunks=(1,), schedules=_entries(*names)
    )
    assert [row.entry.name for row in plain.compared] == ["one_f_one_b"]
    assert plain.refused == ()
