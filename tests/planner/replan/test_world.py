"""Every device of a run as a type of its own."""

from typing import Any

import pytest

from evener.errors import ProfileError
from evener.spec import ClusterSpec
from evener.spec.device import LinkSpec

MS = 1_000_000


def test_as_described_it_costs_what_the_profile_says(small: Any) -> None:
    # 1F1B, 2 stages of 4 ms forward and 8 ms backward each, 4 microbatches: (4 + 1) x 12.
    assert small.world().step_ns(small.plan()) == 60 * MS


def test_one_rank_can_be_slow(small: Any) -> None:
    plan = small.plan()
    # Rank 1 takes 24 ms for each microbatch, 4 of them, after the first forward (4) and before the
    # last backward (8) of rank 0.
    assert small.world().with_speeds({1: 2.0}).step_ns(plan) == (4 + 4 * 24 + 8) * MS


def test_one_kind_of_layer_can_be_slow(small: Any) -> None:
    world = small.world().with_layers({("wide", "forward"): 3.0})
    (row,) = {tuple(c.forward_ns for c in world.problem.layer_costs(f"rank{r}", 1)) for r in (0, 1)}
    assert row == (1 * MS, 9 * MS, 2 * MS, 2 * MS)


def test_one_link_can_be_slow(small: Any) -> None:
    world = small.world().with_latencies({(0, 1): 7})
    assert world.latency_ns == {(0, 1): 7, (1, 0): 0}


def test_plans_go_there_and_back(small: Any) -> None:
    plan = small.plan(devices=("local:1", "local:0"))
    world = small.world(plan)  # rank 0 is on local:1
    assert world.names == ("local:1", "local:0")
    assert world.by_rank(plan).devices == (("rank0:0",), ("rank1:0",))
    turned = small.plan()
    assert world.by_rank(turned).devices == (("rank1:0",), ("rank0:0",))
    assert world.by_name(world.by_rank(turned)) == turned


def test_what_was_not_measured_is_named_by_the_user_s_types(small: Any) -> None:
    profile = small.profile({"embedding": 1, "wide": 3, "narrow": 2})
    with pytest.raises(ProfileError, match='layer "head" on "cpu" with microbatch size 1'):
        type(small.world()).of(small.plan(), small.model, small.cluster(), profile)


def test_of_a_shared_host_link_each_has_its_part(small: Any) -> None:
    (node,) = small.cluster().nodes
    host = LinkSpec(bandwidth_bytes_per_s=10, latency_ns=3)
    spec = small.cluster().device("local:0").spec.model_copy(update={"host": host})
    shared = ClusterSpec(
        name="shared",
        device_types={"cpu": spec},
        nodes=(node.model_copy(update={"host_link_devices": 2}),),
    )
    world = type(small.world()).of(small.plan(), small.model, shared, small.profile())
    assert world.problem.cluster.host_links(("rank0:0", "rank1:0")) == ((3, 5), (3, 5))
