"""AMDP against its public order, its period, and its bound on staleness."""

from itertools import islice

import pytest

from evener.cost.table import CostTable
from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.check import violations
from evener.ir.passes import lower
from evener.ir.schedule import Schedule, Updates
from evener.ir.versions import versions_read
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate

# Of the public code, 8 ranks in 4 directions: the microbatches of a round, forward, by rank.
FORWARDS = (
    (0, 4, 1, 2, 5, 6, 3, 7),
    (0, 1, 4, 5, 2, 3, 6, 7),
    (1, 0, 5, 4, 3, 2, 7, 6),
    (1, 5, 0, 3, 4, 7, 2, 6),
    (2, 6, 3, 0, 7, 4, 1, 5),
    (2, 3, 6, 7, 0, 1, 4, 5),
    (3, 2, 7, 6, 1, 0, 5, 4),
    (3, 7, 2, 1, 6, 5, 0, 4),
)


def amdp(directions: int, num_workers: int, size: int, updates: int) -> Schedule:
    shape = ScheduleShape(num_workers, size, num_updates=updates)
    return SCHEDULES[f"amdp_{directions}"](shape)


def run_ns(schedule: Schedule, backward_ns: int) -> int:
    costs = CostTable.uniform(
        schedule.num_workers, schedule.num_stages, forward_ns=1, backward_ns=backward_ns
    )
    return simulate(schedule, costs).step_ns


def test_every_round_has_the_published_order() -> None:
    schedule = amdp(4, 8, 8, 3)
    for worker, actions in enumerate(schedule.workers):
        for kind, orders in ((Kind.F, FORWARDS), (Kind.B, FORWARDS[::-1])):
            found = [action.microbatch for action in actions if action.kind is kind]
            assert found == [8 * r + m for r in range(3) for m in orders[worker]]


@pytest.mark.parametrize(
    ("worker", "program"),
    [
        # Where pipelines begin and end: F F, the backward that is left, STEP, F x 5, B, F, B x 6.
        (0, "F F B STEP STEP STEP STEP F F F F F B F B B B B B B"),
        # Elsewhere: the backward that is left, F F, STEP, F x 6, B x 7.
        (1, "B F F STEP STEP STEP STEP F F F F F F B B B B B B B"),
    ],
)
def test_a_round_has_the_published_program(worker: int, program: str) -> None:
    actions = amdp(4, 8, 8, 3).workers[worker]
    begin = next(i for i, a in enumerate(actions) if a.microbatch in range(8, 16))
    begin -= actions[begin - 1].kind is Kind.B and worker == 1
    assert " ".join(a.kind for a in islice(actions, begin, begin + 20)) == program


@pytest.mark.parametrize(
    ("directions", "num_workers", "size", "backward_ns", "period_ns"),
    [
        # The published figures: a round of 8 microbatches is 8 (tF + tB) = 24 or 16 of work on
        # each worker, and takes 25 at tB = 2 tF and 16 at tB = tF.
        (4, 8, 8, 2, 25),
        (4, 8, 8, 1, 16),
        # No bubble where every worker begins and ends a pipeline.
        (4, 4, 8, 2, 24),
        (2, 2, 4, 2, 12),
        # Two directions: 4 microbatches, 12 of work.
        (2, 4, 4, 2, 13),
        # Two rounds in one update cost nothing more.
        (4, 8, 16, 2, 50),
    ],
)
def test_the_steady_state_takes_as_long_as_published(
    directions: int, num_workers: int, size: int, backward_ns: int, period_ns: int
) -> None:
    short, long = (amdp(directions, num_workers, size, updates) for updates in (12, 13))
    assert run_ns(long, backward_ns) - run_ns(short, backward_ns) == period_ns
    # Neither the reductions nor handing the weights on hold anybody up.
    assert run_ns(lower(long), backward_ns) - run_ns(lower(short), backward_ns) == period_ns


@pytest.mark.parametrize("shape", [(2, 2, 4), (2, 6, 8), (4, 4, 8), (4, 8, 16)])
def test_only_the_first_two_forwards_of_an_update_are_stale(shape: tuple[int, int, int]) -> None:
    schedule = amdp(*shape, 4)
    assert violations(schedule) == []
    assert schedule.updates == Updates(4, 1)
    stale = {
        action: schedule.update_of(action) - version
        for action, version in versions_read(schedule).items()
        if schedule.update_of(action) != version
    }
    assert set(stale.values()) == {1}
    assert {action.kind for action in stale} == {Kind.F}
    # Two on each worker in each update but the first.
    assert len(stale) == 2 * schedule.num_workers * 3


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ScheduleError) as caught:
        amdp(4, 6, 8, 2)
    assert caught.value.violations == (
        (
            "amdp_4 has pipelines in 4 directions, but 6 workers do not divide by 4; ask for a "
            "multiple"
        ),
    )
    with pytest.raises(ScheduleError) as caught:
        amdp(2, 4, 6, 2)
    assert caught.value.violations == (
        (
            "amdp_2 starts 2 microbatches in each of 2 directions per round, but 6 microbatches "
            "per update do not divide by 4; ask for a multiple"
        ),
    )
    with pytest.raises(ScheduleError) as caught:
        SCHEDULES["amdp_2"](ScheduleShape(4, 4, 2))
    assert caught.value.violations == (
        (
            "amdp_2 holds one stage of each direction per worker, but chunks_per_worker is 2; ask "
            "for 1"
        ),
    )


def test_a_schedule_that_flushes_makes_one_update() -> None:
    with pytest.raises(ScheduleError) as caught:
        SCHEDULES["gpipe"](ScheduleShape(2, 4, num_updates=2))
    assert caught.value.violations == (
        (
            "gpipe flushes its pipeline at every update, but num_updates is 2; ask for 1, or take "
            "an asynchronous schedule such as pipedream_2bw"
        ),
    )
