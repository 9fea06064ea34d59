"""The light form: another order for the same layers on the same devices."""

from typing import Any

from evener.planner.replan.warm_up import with_other_warm_up

MS = 1_000_000
SLOW = {(0, 1): 8 * MS, (1, 0): 8 * MS}


def test_more_forwards_in_advance_hide_a_slow_link(small: Any) -> None:
    plan = small.plan()
    assert plan.replicated.num_workers == 2  # what a plan has computed of itself does not go along
    world = small.world(plan).with_latencies(SLOW)
    found = with_other_warm_up(plan, world)
    assert found is not None
    assert (found.partition, found.devices) == (plan.partition, plan.devices)
    assert found.schedule.runner == plan.schedule.runner
    assert world.step_ns(found) < world.step_ns(plan)


def test_stages_stay_where_they_are(small: Any) -> None:
    """Also where the chain does not run along the workers, and with two stages on each."""
    partition = ((0, 1), (1, 2), (2, 3), (3, 4))
    plan = small.plan(partition, schedule="zb_v")
    world = small.world(plan).with_latencies(SLOW)
    found = with_other_warm_up(plan, world)
    assert found is not None
    assert found.schedule.workers_of_stage == ((0,), (1,), (1,), (0,))


def test_a_stage_that_is_held_twice_has_no_other_order(small: Any) -> None:
    plan = small.plan(schedule="chimera")
    assert with_other_warm_up(plan, small.world(plan)) is None
