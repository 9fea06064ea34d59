"""Copies over a shared link: for themselves if they take turns, otherwise slowed down."""

import pytest

from evener.cost.table import KIND_INDEX, CostTable
from evener.ir.action import Kind
from evener.ir.text import parse_schedule
from evener.planner.shared_links import meet, with_copies
from evener.sim import simulate
from evener.spec.cluster import ClusterSpec


def cluster(sharing: int) -> ClusterSpec:
    """Three devices; 10 bytes per ns to the host, no latency."""
    device = {
        "memory": "1 GB",
        "peak": {"float32": "1 TFLOP/s"},
        "memory_bandwidth": "1 TB/s",
        "link": {"bandwidth": "1 GB/s", "latency": "1 us"},
        "host": {"bandwidth": "10 GB/s", "latency": "0 us"},
    }
    node = {"name": "n", "device": "d", "count": 3, "host_link_devices": sharing}
    return ClusterSpec.model_validate({"name": "c", "device": {"d": device}, "nodes": (node,)})


SCHEDULE = parse_schedule(
    "# schedule copies\n# stages 2\n# microbatches 2\n"
    "0F0 0OFFLOAD0 0F1 0FREE0 0RELOAD0 0B0 0B1\n"
    "1F0 1OFFLOAD0 1F1 1FREE0 1RELOAD0 1B0 1B1\n"
)


def test_who_shares_a_link() -> None:
    names = ["n:0", "n:1", "n:2"]
    assert cluster(1).host_groups(names) == (0, 1, 2)
    assert cluster(2).host_groups(names) == (0, 0, 2)
    assert cluster(2).host_groups(["n:2", "n:1", "n:0"]) == (0, 1, 1)
    # The third has its link for itself; so has the first where the second takes no part.
    speeds = [link.bytes_per_s // 10**9 for link in cluster(2).shared_host_links(names)]
    assert speeds == [5, 5, 10]
    assert [x.bytes_per_s // 10**9 for x in cluster(2).shared_host_links(names[::2])] == [10, 10]


@pytest.mark.parametrize(
    ("sharing", "num_bytes", "copy_ns"), [(1, 150, 15), (2, 100, 10), (2, 110, 22), (2, 150, 30)]
)
def test_copies_that_meet_are_slowed_down(sharing: int, num_bytes: int, copy_ns: int) -> None:
    # A forward takes 10 ns, so worker 0 copies from 10 on, worker 1 from 20 on: 100 bytes at 10
    # bytes per ns are away by then, more are not.
    costs = CostTable.uniform(2, 2, forward_ns=10, activation_bytes=num_bytes)
    priced = with_copies(costs, SCHEDULE, cluster=cluster(sharing), devices=["n:0", "n:1"])
    assert priced.time_ns[:, :, KIND_INDEX[Kind.OFFLOAD]].tolist() == [[copy_ns] * 2] * 2
    timeline = simulate(SCHEDULE, priced)
    assert meet(timeline, (0, 0)) == (copy_ns > 10)
    assert not meet(timeline, (0, 1))
