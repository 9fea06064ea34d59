"""Small steps drawn by hand. Every one is played by the kernel and by the event loop."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from evener.cost.table import KIND_INDEX, CostTable, SliceCosts
from evener.errors import ProfileError, ScheduleError, UsageError
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action, parse_schedule
from evener.ir.timeline import Timeline
from evener.sim import makespans, simulate, simulate_many
from evener.sim.reference import simulate_by_events

PLAYERS = [simulate, simulate_by_events]


@pytest.fixture(params=PLAYERS, ids=["kernel", "events"])
def play(request: pytest.FixtureRequest) -> Callable[[Schedule, CostTable], Timeline]:
    return request.param


def schedule_of(*rows: str, stages: int, microbatches: int = 1, header: str = "") -> Schedule:
    sizes = f"# schedule hand\n# stages {stages}\n# microbatches {microbatches}\n{header}"
    return parse_schedule(sizes + "\n" + "\n".join(rows))


def costs_of(
    num_workers: int, num_stages: int, *, latency_ns: int = 0, message_ns: int = 0, **times_ns: int
) -> CostTable:
    """Times by kind; messages keep their channel for ``message_ns``."""
    stage_ns = {Kind.F: [0] * num_stages}
    stage_ns |= {Kind(kind): [time_ns] * num_stages for kind, time_ns in times_ns.items()}
    table = CostTable.of_stages(num_workers, stage_ns, latency_ns=latency_ns)
    size = np.full(num_stages, message_ns, dtype=np.int64)
    limit = np.full((num_workers, num_workers), 10**9 if message_ns else 0, dtype=np.int64)
    return replace(table, forward_bytes=size, backward_bytes=size, bytes_per_s=limit)


def times(timeline: Timeline) -> dict[str, tuple[int, int]]:
    """Start and end by the text of the action; the worker in front where several have it."""
    spans = [
        (f"{worker}:{span.action}", (span.start_ns, span.end_ns))
        for worker in range(timeline.schedule.num_workers)
        for span in timeline.spans(worker)
    ]
    return dict(spans)


def test_compute_waits_for_its_worker_and_for_its_needs(play) -> None:
    schedule = schedule_of("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", stages=2, microbatches=2)
    # Worker 1 gets F0 at 3 + 2 and is busy from then on: F 5-8, B 8-13, F 13-16, B 16-21.
    # Worker 0 gets the gradients at 13 + 2 and 21 + 2.
    assert times(play(schedule, costs_of(2, 2, F=3, B=5, latency_ns=2))) == {
        "0:0F0": (0, 3),
        "0:0F1": (3, 6),
        "0:0B0": (15, 20),
        "0:0B1": (23, 28),
        "1:1F0": (5, 8),
        "1:1B0": (8, 13),
        "1:1F1": (13, 16),
        "1:1B1": (16, 21),
    }


def test_without_messages_every_need_travels_on_its_own(play) -> None:
    schedule = schedule_of("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", stages=2, microbatches=2)
    # Arrivals of the forwards: 1 + 4 + 3 = 8 and 2 + 4 + 3 = 9; of the gradients, which end at
    # 11 and 12: 18 and 19.
    found = times(play(schedule, costs_of(2, 2, F=1, B=1, message_ns=4, latency_ns=3)))
    assert [found["1:1F0"], found["1:1F1"]] == [(8, 9), (9, 10)]
    assert [found["0:0B0"], found["0:0B1"]] == [(18, 19), (19, 20)]


def test_messages_in_one_direction_queue_and_a_receive_is_later_by_the_latency(play) -> None:
    schedule = schedule_of(
        "0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F0 1RECV_F1 1F0 1F1", stages=2, microbatches=2
    )
    # The second SEND could start at 2, but the channel is free at 1 + 4 = 5.
    assert times(play(schedule, costs_of(2, 2, F=1, message_ns=4, latency_ns=3))) == {
        "0:0F0": (0, 1),
        "0:0SEND_F0": (1, 5),
        "0:0F1": (1, 2),
        "0:0SEND_F1": (5, 9),
        "1:1RECV_F0": (4, 8),
        "1:1RECV_F1": (8, 12),
        "1:1F0": (8, 9),
        "1:1F1": (12, 13),
    }


def test_opposite_directions_do_not_wait_for_each_other(play) -> None:
    schedule = schedule_of(
        "1F0 1SEND_F0 0RECV_F1 0F1",
        "0RECV_F0 1F1 1SEND_F1 0F0",
        stages=2,
        microbatches=2,
        header="# edges 1>0",
    )
    # Both have something to send at 1, and both send until 6.
    found = times(play(schedule, costs_of(2, 2, F=1, message_ns=5)))
    assert found["0:1SEND_F0"] == found["1:1SEND_F1"] == (1, 6)
    assert found["0:0F1"] == found["1:0F0"] == (6, 7)


def test_the_size_of_a_message_is_that_of_its_direction(play) -> None:
    schedule = schedule_of("0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0", stages=2)
    costs = replace(
        costs_of(2, 2, F=1, B=1),
        forward_bytes=np.array([10, 0]),
        backward_bytes=np.array([0, 7]),
        bytes_per_s=np.array([[0, 3 * 10**9], [2 * 10**9, 0]]),
    )
    # 10 bytes at 3 bytes/ns take 3.3 ns, rounded up: 4. 7 bytes at 2 bytes/ns: 4.
    found = times(play(schedule, costs))
    assert found["0:0SEND_F0"] == (1, 5)
    assert found["1:1SEND_B0"] == (7, 11)


def test_what_runs_beside_is_issued_when_the_compute_before_it_has_ended(play) -> None:
    schedule = schedule_of(
        "0F0 0F1 0SEND_F0 0SEND_F1", "1RECV_F0 1RECV_F1 1F0 1F1", stages=2, microbatches=2
    )
    # The product of 0F0 is there at 2, but the list says: after 0F1, which ends at 4.
    assert times(play(schedule, costs_of(2, 2, F=2)))["0:0SEND_F0"] == (4, 4)


def test_members_of_a_collective_start_and_end_together_beside_compute(play) -> None:
    schedule = schedule_of(
        "0F0 0B0 0REDUCE 1F0 1B0 1REDUCE 0STEP 1STEP",
        "0F1 0B1 0REDUCE 1F1 1B1 1REDUCE 0STEP 1STEP",
        stages=2,
        microbatches=2,
    )
    costs = costs_of(2, 2, F=1, B=2, STEP=1)
    costs.time_ns[1, :, KIND_INDEX[Kind.F]] = 4
    costs.time_ns[:, 0, KIND_INDEX[Kind.REDUCE]] = [5, 9]
    costs.time_ns[:, 1, KIND_INDEX[Kind.REDUCE]] = 3
    # In a chain without messages, B of stage 0 must stand behind B of stage 1: cut the chain.
    found = times(play(replace(schedule, edges=()), costs))
    # Stage 0 is ready at 3 and 6, takes max(5, 9): 6-15. Stage 1 is ready at 6 and 12, but its
    # collective waits for the one before it.
    assert found["0:0REDUCE"] == found["1:0REDUCE"] == (6, 15)
    assert found["0:1REDUCE"] == found["1:1REDUCE"] == (15, 18)
    assert found["0:1F0"] == (3, 4)
    assert [found["0:0STEP"], found["0:1STEP"]] == [(15, 16), (18, 19)]
    assert [found["1:0STEP"], found["1:1STEP"]] == [(15, 16), (18, 19)]


@pytest.mark.parametrize(("tied_ns", "end_ns"), [({(0, 1): 2}, 10), ({}, 15)])
def test_stages_that_share_parameters_reduce_them_on_all_their_workers(
    play, tied_ns: dict[tuple[int, int], int], end_ns: int
) -> None:
    schedule = schedule_of(
        "0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE>1 0STEP",
        "1RECV_F0 1F0 1B0 1SEND_B0 0REDUCE>1 1STEP",
        stages=2,
    )
    costs = replace(costs_of(2, 2, F=1, B=3, REDUCE=7), tied_ns=tied_ns)
    # F 0-1, F 1-2, B 2-5, B 5-8; 2 ns if the pair has a time of its own, else that of stage 0.
    found = times(play(schedule, costs))
    assert found["0:0REDUCE>1"] == found["1:0REDUCE>1"] == (8, end_ns)


def test_norm_is_of_all_workers_and_before_every_step(play) -> None:
    schedule = schedule_of(
        "0F0 0SEND_F0 0RECV_B0 0B0 0NORM 0STEP",
        "1RECV_F0 1F0 1B0 1SEND_B0 1NORM 1STEP",
        stages=2,
    )
    found = times(play(schedule, costs_of(2, 2, F=1, B=3, NORM=4, STEP=2)))
    assert found["0:0NORM"] == found["1:1NORM"] == (8, 12)
    assert found["0:0STEP"] == found["1:1STEP"] == (12, 14)


def test_a_slice_waits_for_the_slice_before_it_and_its_backward_for_the_one_after(play) -> None:
    schedule = schedule_of(
        "0F0.0 0F0.1 0B0.1 0B0.0", "1F0.0 1F0.1 1B0.1 1B0.0", stages=2, header="# slices 2"
    )
    # Worker 1: F 2-4, F 4-6, B 6-9, B 9-12. Worker 0: its B follow at 9 and 12.
    found = times(play(schedule, costs_of(2, 2, F=2, B=3)))
    assert [found["1:1F0.0"], found["1:1F0.1"]] == [(2, 4), (4, 6)]
    assert [found["0:0B0.1"], found["0:0B0.0"]] == [(9, 12), (12, 15)]


def test_a_stage_waits_for_all_stages_that_feed_it(play) -> None:
    schedule = schedule_of(
        "0F0 0SEND_F0 0RECV_B0 0B0",
        "1F0 1SEND_F0 1RECV_B0 1B0",
        "2RECV_F0>0 2RECV_F0>1 2F0 2B0 2SEND_B0>0 2SEND_B0>1",
        stages=3,
        header="# edges 0>2 1>2",
    )
    costs = costs_of(3, 3, F=1, B=1, message_ns=2)
    costs.time_ns[1, 1, KIND_INDEX[Kind.F]] = 6
    # The later of 1 + 2 and 6 + 2. Two gradients leave on two channels at 10.
    found = times(play(schedule, costs))
    assert found["2:2F0"] == (8, 9)
    assert found["2:2SEND_B0>0"] == found["2:2SEND_B0>1"] == (10, 12)
    assert found["0:0B0"] == found["1:1B0"] == (12, 13)


def test_host_transfers_run_beside_in_both_directions(play) -> None:
    schedule = schedule_of(
        "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0FREE0 0FREE1 0RELOAD1 0B1 0RELOAD0 0B0",
        stages=1,
        microbatches=2,
    )
    # F 0-2, 2-4. Out: 2-5, 5-8, and the worker waits for both. Back: 8-12 for the second, B
    # 12-13; the first is issued then: its way back is free at 12, it comes 13-17, B 17-18.
    found = times(play(schedule, costs_of(1, 1, F=2, B=1, OFFLOAD=3, RELOAD=4)))
    assert [found["0:0OFFLOAD0"], found["0:0OFFLOAD1"]] == [(2, 5), (5, 8)]
    assert [found["0:0FREE0"], found["0:0FREE1"]] == [(5, 5), (8, 8)]
    assert [found["0:0RELOAD1"], found["0:0B1"]] == [(8, 12), (12, 13)]
    assert [found["0:0RELOAD0"], found["0:0B0"]] == [(13, 17), (17, 18)]


def test_gathered_parameters_are_waited_for(play) -> None:
    schedule = schedule_of("0GATHER 0F0 0RELEASE 0GATHER 0B0 0RELEASE", stages=1)
    # The second gathering is issued at 5 + 2, after the release at 7.
    found = times(play(schedule, costs_of(1, 1, F=2, B=1, GATHER=5, RELEASE=1)))
    assert found["0:0F0"] == (5, 7)
    assert found["0:0B0"] == (13, 14)


def test_side_work_holds_its_worker_and_is_timed_by_name(play) -> None:
    schedule = schedule_of("0F0 0X:encode 0X:factor 0B0", stages=1)
    costs = replace(costs_of(1, 1, F=1, B=1), side_ns={"encode": 10, "factor": 20})
    assert times(play(schedule, costs))["0:0B0"] == (31, 32)


def test_side_work_without_a_time_is_named() -> None:
    schedule = schedule_of("0F0 0X:encode 0X:factor 0B0", stages=1)
    with pytest.raises(ProfileError) as caught:
        simulate(schedule, costs_of(1, 1, F=1))
    assert str(caught.value) == (
        "the costs are incomplete\n"
        "  no time is known for the side work X:encode; give it one in [[side_work]] of the "
        "plan's job, or from Python in side_ns of the costs\n"
        "  no time is known for the side work X:factor; give it one in [[side_work]] of the "
        "plan's job, or from Python in side_ns of the costs"
    )


def test_memory_is_counted_in_list_order(play) -> None:
    schedule = schedule_of(
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1RECV_F1 1F0 1I0 1SEND_B0 1F1 1W0 1I1 1SEND_B1 1W1",
        stages=2,
        microbatches=2,
    )
    sizes = {
        Resource.ACTIVATION: (10, 20),
        Resource.INPUT: (0, 3),
        Resource.OUTPUT_GRADIENT: (5, 0),
        Resource.WEIGHT_GRADIENT: (0, 8),
    }
    costs = replace(costs_of(2, 2), memory=MemoryTable(sizes, static_bytes=(100, 1000)))
    timeline = play(schedule, costs)
    first, second = timeline.memory_bytes[:8].tolist(), timeline.memory_bytes[8:].tolist()
    # F +10, F +10, RECV_B +5, B -15, RECV_B +5, B -15.
    assert first == [110, 110, 120, 120, 125, 110, 115, 100]
    # RECV +3 +3; F -3 +20 = 1023; I -20 +8 = 1011; F -3 +20 = 1028; W -8; I -20 +8; W -8.
    assert second == [1003, 1006, 1023, 1011, 1011, 1028, 1020, 1008, 1008, 1000]
    assert timeline.peak_bytes == (125, 1028)


def test_a_worker_may_have_nothing_to_do(play) -> None:
    timeline = play(schedule_of("0F0 0B0", "-", stages=1), costs_of(2, 1, F=2, B=3))
    assert (timeline.step_ns, timeline.peak_bytes) == (5, (0, 0))


def test_a_schedule_may_be_empty() -> None:
    timeline = simulate(Schedule("empty", 1, 0, ((), ())), costs_of(2, 1))
    assert (timeline.step_ns, len(timeline.start_ns)) == (0, 0)


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("m", [1, 3, 8])
def test_gpipe_and_one_f_one_b_take_their_closed_form(play, p: int, m: int) -> None:
    forwards = [[f"{stage}F{i}" for i in range(m)] for stage in range(p)]
    backwards = [[f"{stage}B{i}" for i in range(m)] for stage in range(p)]
    # m slots of F and B, and p - 1 of each to fill and to drain: (m + p - 1)(tF + tB).
    expected = (m + p - 1) * (3 + 5)
    gpipe = [" ".join(f + b) for f, b in zip(forwards, backwards, strict=True)]
    one_f_one_b = []
    for stage, (f, b) in enumerate(zip(forwards, backwards, strict=True)):
        early = min(m, p - stage)
        pairs = zip(b, f[early:] + [""] * early, strict=True)
        one_f_one_b.append(" ".join([*f[:early], *(text for pair in pairs for text in pair)]))
    for rows in (gpipe, one_f_one_b):
        schedule = schedule_of(*rows, stages=p, microbatches=m)
        assert play(schedule, costs_of(p, p, F=3, B=5)).step_ns == expected


def test_many_costs_at_once_give_what_one_at_a_time_gives() -> None:
    schedule = schedule_of("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", stages=2, microbatches=2)
    tables = [costs_of(2, 2, F=f, B=b, latency_ns=2) for f, b in ((3, 5), (1, 1), (0, 0))]
    outcomes = simulate_many(schedule, tables)
    # The first is drawn above. 1 + 2 + 1 + 1 | 1 + 1 + 2 + 1 = 10; twice the latency alone: 4.
    assert [outcome.step_ns for outcome in outcomes] == [28, 10, 4]
    assert outcomes[0].bubbles.busy_ns == (16, 16)
    batch = np.stack([table.time_ns for table in tables])
    assert makespans(schedule, tables[0], batch).tolist() == [28, 10, 4]


def test_makespans_leave_messages_and_side_work_as_they_are() -> None:
    schedule = schedule_of(
        "0F0 0SEND_F0 0X:encode 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0", stages=2
    )
    costs = replace(costs_of(2, 2, F=9, B=9, message_ns=4, latency_ns=1), side_ns={"encode": 50})
    # F 0-1, side work 1-51. B of stage 1 ends at 1 + 5 + 1 + 2 = 9 and its gradient is there at 14:
    # B 51-53. With B = 30 it is there at 42: B 51-81.
    batch = [costs_of(2, 2, F=1, B=b).time_ns for b in (2, 30)]
    assert makespans(schedule, costs, np.stack(batch)).tolist() == [53, 81]


def test_makespans_want_tables_of_the_same_size() -> None:
    schedule = schedule_of("0F0 0B0", stages=1)
    with pytest.raises(UsageError) as caught:
        makespans(schedule, costs_of(1, 1), np.zeros((4, 1, 2, len(Kind)), dtype=np.int64))
    assert str(caught.value) == (
        f"time_ns has shape (4, 1, 2, {len(Kind)}), but the costs want (batch, worker, stage, "
        f"kind) = (any, 1, 1, {len(Kind)})"
    )


def test_costs_of_other_sizes_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        simulate(schedule_of("0F0 0B0", stages=1), costs_of(2, 3))
    assert str(caught.value) == (
        "the costs are those of 2 workers and 3 stages, but schedule hand has 1 workers and 1 "
        "stages; build the costs for this schedule"
    )


@pytest.mark.parametrize(
    "rows",
    [
        ("0F0 0B0", "1B0 1F0"),  # behind what it needs, on one worker
        ("0F0 0B0", "1F0"),  # a gradient that nobody makes
        ("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"),  # each worker waits for the other
    ],
)
def test_a_schedule_that_cannot_finish_is_refused(play, rows: tuple[str, ...]) -> None:
    with pytest.raises(ScheduleError):
        play(schedule_of(*rows, stages=2, microbatches=2), costs_of(2, 2, F=1, B=1))


def test_the_event_loop_says_where_each_worker_is_stuck() -> None:
    schedule = schedule_of("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0", stages=2, microbatches=2)
    with pytest.raises(ScheduleError) as caught:
        simulate_by_events(schedule, costs_of(2, 2, F=1, B=1))
    assert caught.value.violations == ("worker 0: 0B0", "worker 1: 1F1")


@pytest.mark.parametrize("latency_ns", [0, 2**61])
def test_a_step_that_cannot_be_counted_is_refused(latency_ns: int) -> None:
    """Four actions of 2**61 ns are 2**63; so is one latency for each of four."""
    schedule = schedule_of("0F0 0B0", "1F0 1B0", stages=2)
    costs = costs_of(2, 2, latency_ns=latency_ns, F=2**61 - latency_ns)
    with pytest.raises(UsageError) as caught:
        simulate(schedule, costs)
    assert str(caught.value) == (
        "an action of hand takes 2.31e+09 s; 4 such actions would be more than 290 years: give "
        "shorter times, or faster links"
    )


def test_the_longest_step_that_can_be_counted() -> None:
    """Two actions of 2**62 - 1 ns, one after the other."""
    costs = costs_of(1, 1, F=2**62 - 1, B=2**62 - 1)
    assert simulate(schedule_of("0F0 0B0", stages=1), costs).step_ns == 2**63 - 2


def test_single_actions_take_their_own_time(play) -> None:
    schedule = schedule_of("0F0 0F1 0B0 0B1", stages=1, microbatches=2)
    costs = replace(
        costs_of(1, 1, F=3, B=5),
        single_ns={parse_action("0B0"): 2, parse_action("0F1"): 0},
    )
    assert times(play(schedule, costs)) == {
        "0:0F0": (0, 3),
        "0:0F1": (3, 3),
        "0:0B0": (3, 5),
        "0:0B1": (5, 10),
    }
    # As for all schedules of one worker, the step is its work: 3 + 0 + 2 + 5.
    assert makespans(schedule, costs, costs.time_ns[None]).tolist() == [10]
    plain, single = simulate_many(schedule, [replace(costs, single_ns={}), costs])
    assert (plain.step_ns, single.step_ns) == (16, 10)
    assert single.bubbles.busy_ns == (10,)


def test_single_times_of_actions_that_are_not_there_or_are_messages_are_refused() -> None:
    schedule = schedule_of("0F0 0SEND_F0", "1RECV_F0 1F0", stages=2)
    single_ns = {parse_action(text): 1 for text in ("0F0", "0B0", "1RECV_F0", "1F7")}
    with pytest.raises(UsageError) as caught:
        simulate(schedule, replace(costs_of(2, 2), single_ns=single_ns))
    assert str(caught.value) == (
        "the times of single actions do not fit the schedule\n"
        "  0B0 has a time of its own, but is not in the schedule; leave it out of single_ns\n"
        "  1F7 has a time of its own, but is not in the schedule; leave it out of single_ns\n"
        "  1RECV_F0 takes the time of its link; change the link, not single_ns"
    )


def sliced_schedule() -> Schedule:
    rows = ("0F0.0 0F0.1 0B0.1 0B0.0", "1F0.0 1F0.1 1B0.1 1B0.0")
    return schedule_of(*rows, stages=2, header="# slices 2")


def sliced_costs() -> CostTable:
    """F of the slices 2 and 3 ns, B 4 and 6; the activations of stage 0 hold 10 and 30 bytes."""
    costs = costs_of(2, 2)
    slices = SliceCosts.equal(costs, 2)
    slices.time_ns[:, :, KIND_INDEX[Kind.F]] = 2, 3
    slices.time_ns[:, :, KIND_INDEX[Kind.B]] = 4, 6
    memory = MemoryTable({}, (0, 0), per_slice={Resource.ACTIVATION: ((10, 30), (0, 0))})
    return replace(costs, slices=slices, memory=memory)


def test_slices_take_their_own_times(play) -> None:
    # Worker 0: F 0-2, 2-5; worker 1: F 2-4, 5-8, B 8-14, 14-18; worker 0: B 14-20, 20-24.
    timeline = play(sliced_schedule(), sliced_costs())
    assert timeline.start_ns.tolist() == [0, 2, 14, 20, 2, 5, 8, 14]
    assert timeline.end_ns.tolist() == [2, 5, 20, 24, 4, 8, 14, 18]
    assert timeline.memory_bytes.tolist() == [10, 40, 10, 0, 0, 0, 0, 0]
    assert timeline.peak_bytes == (40, 0)


def test_a_batch_of_times_has_none_for_slices() -> None:
    costs = sliced_costs()
    with pytest.raises(UsageError, match="the costs have a time for each slice, which a batch"):
        makespans(sliced_schedule(), costs, costs.time_ns[None])
    whole = schedule_of("0F0 0B0", "1F0 1B0", stages=2)
    with pytest.raises(UsageError, match="the costs are those of 2 slices"):
        simulate(whole, costs)
