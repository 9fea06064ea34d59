"""The list scheduler: its times are those of the simulator, its caps hold, its rules are kept."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.check import check
from evener.schedules.entry import PipelineTimes, StageTimes
from evener.schedules.list_scheduler import KIND_ORDER, ListRun, ListWorld, Priorities, capped
from evener.sim import simulate
from evener.testing.worlds import pipeline_costs, unequal_times

ORDERS = list(permutations(KIND_ORDER))


def text(run: ListRun) -> list[str]:
    return [" ".join(map(str, row)) for row in run.schedule("x").workers]


def chain(times: PipelineTimes, num_microbatches: int) -> ListWorld:
    """One stage per worker."""
    num_stages = len(times.forward_ns)
    return ListWorld(
        times,
        num_workers=num_stages,
        num_microbatches=num_microbatches,
        workers=range(num_stages),
    )


def equal(num_stages: int, *ns: int, message_ns: int = 0) -> PipelineTimes:
    return PipelineTimes.equal(num_stages, StageTimes(*ns), message_ns=message_ns)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[PipelineTimes, int, int, list[list[int]], Priorities]:
    """Any stages, each microbatch of each on any worker, capped tightly, loosely or not."""
    num_workers, num_stages = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    num_microbatches = draw(st.integers(1, 6))

    def ints(low: int, high: int, size: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)))

    workers = [list(ints(0, num_workers - 1, num_microbatches)) for _ in range(num_stages)]
    times = PipelineTimes(
        *(ints(1, 9, num_stages) for _ in range(3)),
        *(ints(0, 9, num_stages - 1) for _ in range(2)),
        *(ints(0, 9, num_stages) for _ in range(2)),
    )
    num_cells = draw(st.sampled_from((1, 2, None)))
    if num_cells is not None:
        caps = [0] * num_workers
        for stage, row in enumerate(workers):
            held = max(times.activation_bytes[stage], times.weight_gradient_bytes[stage])
            for worker in set(row):
                caps[worker] += num_cells * held
        times = replace(times, cap_bytes=tuple(caps))
    priorities = Priorities(
        order=draw(st.sampled_from(ORDERS)),
        after_backward=draw(st.sampled_from([None, *ORDERS])),
        later_stage_first=frozenset(draw(st.sets(st.sampled_from(KIND_ORDER)))),
        least_forwards=draw(st.none() | st.just(ints(0, 5, num_workers))),
        most_forwards=draw(st.none() | st.just(ints(0, 5, num_workers))),
        overlap_messages=draw(st.booleans()),
        patient=draw(st.booleans()),
        split_backward=draw(st.booleans()),
    )
    return times, num_workers, num_microbatches, workers, priorities


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_every_order_is_legal_and_its_times_are_those_of_the_simulator(
    world: tuple[PipelineTimes, int, int, list[list[int]], Priorities],
) -> None:
    times, num_workers, num_microbatches, workers, priorities = world
    run = ListWorld(
        times, num_workers=num_workers, num_microbatches=num_microbatches, workers=workers
    ).run(priorities)
    schedule = run.schedule("x")
    costs = pipeline_costs(num_workers, times)
    check(schedule, memory=costs.memory, cap_bytes=times.cap_bytes)
    assert simulate(schedule, costs).step_ns == run.step_ns


def test_the_order_of_one_worker_by_hand() -> None:
    # F 2, I 1, W 1 on one worker, two microbatches: the kinds in every order of preference.
    world = chain(equal(1, 2, 1, 1), 2)
    preferred = {order: text(world.run(Priorities(order=order))) for order in ORDERS}
    f, i, w = KIND_ORDER
    assert preferred[f, i, w] == ["0F0 0F1 0I0 0I1 0W0 0W1"]
    assert preferred[f, w, i] == ["0F0 0F1 0I0 0W0 0I1 0W1"]
    assert preferred[i, f, w] == ["0F0 0I0 0F1 0I1 0W0 0W1"]
    assert preferred[i, w, f] == preferred[w, i, f] == ["0F0 0I0 0W0 0F1 0I1 0W1"]
    assert preferred[w, f, i] == preferred[f, w, i]
    assert text(world.run(Priorities(split_backward=False))) == ["0F0 0B0 0F1 0B1"]


def test_a_worker_may_prefer_forwards_after_a_backward() -> None:
    # All I of worker 1 are ready at once; it alternates as long as there are forwards.
    world = chain(equal(2, 1, 1, 1), 3)
    run = world.run(Priorities(order=(Kind.I, Kind.F, Kind.W), after_backward=ORDERS[0]))
    assert ORDERS[0] == (Kind.F, Kind.I, Kind.W)
    assert text(run)[1] == "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"


def test_a_patient_w_does_not_delay_what_is_on_its_way() -> None:
    # F 1, I 1, W 5, message 2: worker 1 ends 1I0 at 5 and has 1F1 only when 0F1, begun at 1 or
    # when memory allows it, has come.  0F1 starts at 1 and comes at 4: no wait.  So let worker 0
    # hold one microbatch: 0F1 waits for 0I0 (7 to 8) and 0W0 (to 13) and comes at 16, and the
    # wait of worker 1 has room for its W.
    times = replace(equal(2, 1, 1, 5, message_ns=2), cap_bytes=(1, 2))
    assert text(chain(times, 2).run(Priorities(patient=True)))[1] == "1F0 1I0 1W0 1F1 1I1 1W1"
    # With room for all on both, and a slow link: 1F1 comes at 1 + 1 + 9 = 11 one slot after 1F0
    # at 10; 1I0 then ends at 12, and nothing else is to come.  Worker 0 has 0I0 at 12 + 9 = 21 to
    # 22 and knows that 0I1 comes at 23: W waits for it, or delays it.
    times = equal(2, 1, 1, 5, message_ns=9)
    hasty, patient = (
        text(chain(times, 2).run(Priorities(patient=patient)))[0] for patient in (False, True)
    )
    assert hasty == "0F0 0F1 0I0 0W0 0I1 0W1"
    assert patient == "0F0 0F1 0I0 0I1 0W0 0W1"


def test_forwards_before_the_first_backward_are_counted() -> None:
    world = chain(equal(2, 1, 1, 1), 4)
    least = world.run(Priorities(least_forwards=(0, 3)))
    assert text(least)[1].startswith("1F0 1F1 1F2 1I0")
    most = world.run(Priorities(most_forwards=(1, 4)))
    assert text(most)[0].startswith("0F0 0I0")


def test_forwards_that_do_not_fit_are_not_waited_for() -> None:
    times = replace(equal(2, 1, 1, 1), cap_bytes=(4, 2))
    run = chain(times, 4).run(Priorities(least_forwards=(0, 3)))
    assert text(run)[1].startswith("1F0 1F1 1I0")


def test_forwards_that_never_come_are_not_waited_for() -> None:
    # Worker 0 holds one microbatch until its W: worker 1 would wait for three for good.
    times = replace(equal(2, 1, 1, 1), cap_bytes=(1, 3))
    run = chain(times, 3).run(Priorities(least_forwards=(0, 3)))
    assert text(run) == [
        "0F0 0I0 0W0 0F1 0I1 0W1 0F2 0I2 0W2",
        "1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2",
    ]


def test_later_stages_may_go_first() -> None:
    # Both stages on one worker: after 0F0 both 0F1 and 1F0 are ready.
    world = ListWorld(equal(2, 1, 1, 1), num_workers=1, num_microbatches=2, workers=[0, 0])
    order = (Kind.F, Kind.I, Kind.W)
    assert text(world.run(Priorities(order)))[0].startswith("0F0 1F0 0F1 1F1")
    later = Priorities(order, later_stage_first=frozenset({Kind.I}))
    assert text(world.run(Priorities(order)))[0].endswith("1I0 0I0 1I1 0I1 0W0 1W0 0W1 1W1")
    assert text(world.run(later))[0].endswith("1I0 1I1 0I0 0I1 0W0 1W0 0W1 1W1")


def test_a_message_that_left_too_late_to_be_hidden_lets_others_go_first() -> None:
    # Stages 0 and 2 on worker 0, stage 1 on worker 1, F 2: worker 0 ends 0F1 at 4 as worker 1 ends
    # 1F0; that message left after 0F1 had begun at 2.  Now 2F0 lets 0F2 go first, unless exempt.
    # The same at 6 with 2F1: it was sent at 6, and 2F0 (or 0F2) had begun at 4.
    times = equal(3, 2, 1, 1)
    world = ListWorld(times, num_workers=2, num_microbatches=3, workers=[0, 1, 0])
    forwards = Priorities((Kind.F, Kind.I, Kind.W))
    assert text(world.run(forwards))[0].startswith("0F0 0F1 2F0 2F1")
    rule = replace(forwards, overlap_messages=True)
    assert text(world.run(rule))[0].startswith("0F0 0F1 0F2 2F0 2F1")
    exempt = replace(rule, at_once=frozenset({(Kind.F, 0)}))
    assert text(world.run(exempt))[0].startswith("0F0 0F1 2F0 0F2 2F1")


def test_a_fixed_order_is_kept_and_filled() -> None:
    times = equal(2, 2, 2, 1)
    when = np.array([[[0, 1, 2], [0, 2, 4]], [[3, 4, 5], [1, 3, 5]]])
    run = chain(times, 3).fill(when)
    assert run is not None
    rows = [" ".join(w for w in row.split() if "W" not in w) for row in text(run)]
    assert rows == ["0F0 0F1 0F2 0I0 0I1 0I2", "1F0 1I0 1F1 1I1 1F2 1I2"]
    # 0F0..0F2 end at 6 as 1I0 does; 1I1 and 1I2 end at 10 and 14, and 0I0 takes until 8.
    assert text(run)[0] == "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2"


def test_a_fixed_order_that_no_cap_has_room_for() -> None:
    times = capped(equal(2, 1, 1, 1), range(2), num_held=2)
    when = np.array([[[0, 1, 2], [0, 2, 4]], [[3, 4, 5], [1, 3, 5]]])
    assert chain(times, 3).fill(when) is None


def test_what_a_worker_may_hold_is_the_tighter_of_two_caps() -> None:
    times = unequal_times(3)  # 10, 40 and 5 bytes per microbatch
    assert capped(times, range(3), num_held=3).cap_bytes == (30, 120, 15)
    assert capped(times, [0, 1, 0], num_held=3).cap_bytes == (45, 120)
    times = replace(times, cap_bytes=(50, 50, 50))
    assert capped(times, range(3), num_held=3).cap_bytes == (30, 50, 15)


def test_caps_without_room_for_one_microbatch_are_refused() -> None:
    # Stages 0 and 2 are on worker 0 and take 10 + 5 bytes, stage 1 takes 40.
    times = replace(unequal_times(3), cap_bytes=(14, 39))
    with pytest.raises(ScheduleError) as caught:
        ListWorld(times, num_workers=2, num_microbatches=1, workers=[0, 1, 0])
    assert str(caught.value) == (
        "no order keeps these memory caps\n"
        "  worker 0: one microbatch of each of its stages takes 15 bytes, but 14 bytes are left "
        "for them; raise the cap or give the worker fewer layers\n"
        "  worker 1: one microbatch of each of its stages takes 40 bytes, but 39 bytes are left "
        "for them; raise the cap or give the worker fewer layers"
    )


def test_the_span_is_that_of_the_busiest_worker() -> None:
    # F 2, I 1, W 1, message 5: 0F0 0-2, 1F0 7-9, 1I0 9-10, 1W0 10-11, 0I0 15-16, 0W0 16-17.
    run = chain(equal(2, 2, 1, 1, message_ns=5), 1).run(Priorities())
    assert (run.step_ns, run.span_ns) == (17, 17)
    # An idle worker has no span.
    idle = ListWorld(equal(1, 2, 1, 1), num_workers=2, num_microbatches=1, workers=[1])
    assert idle.run(Priorities()).span_ns == 4
