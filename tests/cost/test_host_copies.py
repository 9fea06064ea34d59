"""Copies to host memory are priced by the link to the host."""

import pytest

from evener.cost.host_copies import bytes_within, with_host_copies
from evener.cost.table import CostTable
from evener.errors import UsageError
from evener.ir.action import Action, Kind
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.spec.cluster import ClusterSpec, Link, NodeSpec
from evener.spec.device import DeviceSpec, LinkSpec

ROW = "0F0 0OFFLOAD0 0FREE0 0RELOAD0 0B0"
SLOW, FAST = Link(latency_ns=10, bytes_per_s=10**9), Link(latency_ns=0, bytes_per_s=4 * 10**9)


def world(row: str) -> Schedule:
    return Schedule("test", 1, 1, (tuple(map(parse_action, row.split())), ()))


def test_a_copy_takes_the_latency_and_its_bytes_each_way() -> None:
    costs = CostTable.uniform(2, 1, activation_bytes=100)
    whole = with_host_copies(costs, world(ROW), links=[SLOW, FAST])
    for kind in (Kind.OFFLOAD, Kind.RELOAD):
        # 10 + 100 ns at one byte per ns, 25 ns at four.
        assert [whole.action_ns(w, Action(0, kind, 0)) for w in (0, 1)] == [110, 25]
    assert whole.memory.size_bytes(Resource.OFFLOADED, 0) == 100
    part = with_host_copies(costs, world(ROW), links=[SLOW, FAST], num_bytes=[30])
    assert [part.action_ns(w, Action(0, Kind.OFFLOAD, 0)) for w in (0, 1)] == [40, 8]
    assert part.memory.size_bytes(Resource.OFFLOADED, 0) == 30
    assert part.memory.size_bytes(Resource.ACTIVATION, 0) == 100


def test_a_recomputed_cell_moves_its_checkpoint() -> None:
    costs = CostTable.uniform(2, 1, activation_bytes=100)
    recomputed = world("0F0 0OFFLOAD0 0FREE0 0RELOAD0 0R0 0B0")
    # ``uniform`` knows of no checkpoint: it has 0 bytes, and an empty copy takes no time.
    found = with_host_copies(costs, recomputed, links=[SLOW, FAST])
    assert found.action_ns(0, Action(0, Kind.OFFLOAD, 0)) == 0


def test_a_stage_that_recomputes_some_cells_moves_the_others_whole() -> None:
    costs = CostTable.uniform(2, 1, activation_bytes=100)
    mixed = world("0F0 0OFFLOAD0 0FREE0 0F1 0R1 0B1 0RELOAD0 0B0")
    found = with_host_copies(costs, mixed, links=[SLOW, FAST])
    # 10 + 100 ns at one byte per ns: cell 0 is not recomputed.
    assert found.action_ns(0, Action(0, Kind.OFFLOAD, 0)) == 110


def test_what_can_be_copied_in_a_time() -> None:
    assert bytes_within(110, SLOW) == 100
    assert bytes_within(9, SLOW) == 0
    assert bytes_within(10, FAST) == 40
    assert bytes_within(0, Link(0, 0)) is None


def test_a_device_without_a_link_to_its_host_is_refused() -> None:
    device = DeviceSpec(
        memory_bytes=1,
        memory_bandwidth_bytes_per_s=1,
        peak_flops_per_s={},
        link=LinkSpec(bandwidth_bytes_per_s=1, latency_ns=0),
    )
    cluster = ClusterSpec(
        name="c",
        device_types={"mine": device},
        nodes=(NodeSpec(name="a", device="mine", count=2),),
    )
    with pytest.raises(UsageError) as caught:
        cluster.host_links(cluster.devices)
    assert str(caught.value) == (
        "activations cannot be moved to host memory\n"
        '  device type "mine" has no link to its host; add host = { bandwidth = "32 GB/s", latency '
        '= "8 us" } (or what it is) to [device.mine], or plan without offload'
    )
    assert ClusterSpec.local(1).host_links(["local:0"]) == (Link(30_000, 5 * 10**9),)
