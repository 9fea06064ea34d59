"""What simulated timelines of a changed world say to somebody who believes the old one."""

from typing import Any

import pytest

from evener.planner.replan.observation import Observation

MS = 1_000_000


def test_nothing_new(small: Any) -> None:
    world = small.world()
    found = small.drift(small.plan(), world, world)
    assert found.reasons == ()
    assert found.world == world


@pytest.mark.parametrize("factor", [1.15, 0.9])
def test_small_changes_are_noise(factor: float, small: Any) -> None:
    world = small.world()
    assert small.drift(small.plan(), world, world.with_speeds({1: factor})).reasons == ()


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_worker_has_changed(factor: float, small: Any) -> None:
    world = small.world()
    found = small.drift(small.plan(), world.with_speeds({0: 1 / factor}), world)
    assert found.reasons == (f"local:0 takes {factor:.2f} times as long as expected",)
    assert not found.only_links
    assert found.world.step_ns(small.plan()) == world.step_ns(small.plan())


def test_a_worker_is_known_by_its_device(small: Any) -> None:
    plan, turned = small.plan(), small.plan(devices=("local:1", "local:0"))
    world = small.world(plan)
    found = small.drift(turned, world, world.with_speeds({1: 2.0}))
    assert found.reasons == ("local:1 takes 2.00 times as long as expected",)


def test_all_workers_together_are_the_work(small: Any) -> None:
    world = small.world()
    found = small.drift(small.plan(), world, world.with_speeds({0: 1.5, 1: 1.5}))
    assert found.reasons == ("the work takes 1.50 times as long as expected",)


def test_a_slow_link_is_known_by_those_who_wait_for_it(small: Any) -> None:
    plan, world = small.plan(), small.world()
    found = small.drift(plan, world, world.with_latencies({(0, 1): 10 * MS, (1, 0): 10 * MS}))
    assert found.reasons == (
        "messages from local:0 to local:1 take 10 ms instead of 0 ns",
        "messages from local:1 to local:0 take 10 ms instead of 0 ns",
    )
    assert found.only_links
    assert found.world.latency_ns == {(0, 1): 10 * MS, (1, 0): 10 * MS}


def test_a_link_is_judged_by_the_actions_beside_it(small: Any) -> None:
    # A mean action takes 6 ms (4 forward, 8 backward): a fifth of it is 1.2 ms.
    plan, world = small.plan(), small.world()
    assert not small.drift(plan, world, world.with_latencies({(0, 1): MS})).reasons
    assert small.drift(plan, world, world.with_latencies({(0, 1): 2 * MS})).reasons


def test_layers_explain_what_a_described_profile_has_wrong(small: Any) -> None:
    """Stage 1 is narrow and head; both take twice as long, so the other stage explains nothing."""
    plan, world = small.plan(), small.world()
    real = world.with_layers(
        {(name, way): 2.0 for name in ("narrow", "head") for way in ("forward", "backward")}
    )
    found = small.drift(plan, world, real, trusts_layers=False)
    for rank in ("rank0", "rank1"):
        assert [c.forward_ns for c in found.world.problem.layer_costs(rank, 1)] == pytest.approx(
            [1 * MS, 3 * MS, 4 * MS, 4 * MS], rel=1e-6
        )


def test_no_layer_is_believed_to_be_many_times_slower(small: Any) -> None:
    """Worker 1 takes 40 times as long: 4 by its layers and 10 by itself; worker 0 is as it was."""
    plan, world = small.plan(), small.world()
    found = small.drift(plan, world, world.with_speeds({1: 40.0}), trusts_layers=False)
    assert [c.forward_ns for c in found.world.problem.layer_costs("rank0", 1)] == pytest.approx(
        [1 * MS, 3 * MS, 8 * MS, 8 * MS], rel=1e-6
    )
    assert found.reasons == (
        "layer narrow takes 4.00 times as long forward as its profile says",
        "local:1 takes 10.00 times as long as expected",
    )


def test_windows_are_medians(small: Any) -> None:
    plan, world = small.plan(), small.world()
    calm, late = small.seen(plan, world), small.seen(plan, world.with_speeds({0: 9.0, 1: 9.0}))
    together = Observation.together([calm, late, calm])
    assert together.step_ns == calm.step_ns
    assert together.work_ns.tolist() == calm.work_ns.tolist()
