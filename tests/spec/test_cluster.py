import pytest

from evener.errors import UsageError
from evener.spec import ClusterSpec, LinkSpec, NodeSpec, ZoneLinkSpec, parse_toml
from evener.spec import cluster as cluster_module

SLOW = LinkSpec(bandwidth_bytes_per_s=1_000, latency_ns=7)
FAST = LinkSpec(bandwidth_bytes_per_s=9_000, latency_ns=2)


def world(**changes) -> ClusterSpec:
    """Two nodes a0, a1 of two devices in zone x and one node b in zone y."""
    values = {
        "name": "world",
        "nodes": (
            NodeSpec(name="a", copies=2, device="l4", count=2, zone="x", link=FAST),
            NodeSpec(name="b", device="h100-sxm", zone="y", price_micro_usd_per_h=5),
        ),
        "between_nodes": SLOW,
        "between_zones": LinkSpec(bandwidth_bytes_per_s=10, latency_ns=100),
    }
    return ClusterSpec(**values | changes)


def test_devices_are_named_by_node_and_position() -> None:
    assert world().devices == ("a0:0", "a0:1", "a1:0", "a1:1", "b:0")


def test_device() -> None:
    device = world().device("a1:0")
    assert (device.node, device.zone, device.type) == ("a1", "x", "l4")
    assert device.spec.memory_bytes == 24 * 10**9


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a0:0", "a0:0", (0, 0)),  # the same device: no latency, no limit
        ("a0:0", "a0:1", (2, 9_000)),  # the node's own link
        ("a0:0", "a1:0", (7, 1_000)),  # between nodes
        ("a0:0", "b:0", (100, 10)),  # between zones
        ("b:0", "a1:1", (100, 10)),
    ],
)
def test_link(source: str, target: str, expected: tuple[int, int]) -> None:
    assert world().link(source, target) == expected


def test_a_zone_link_holds_for_one_direction() -> None:
    link = ZoneLinkSpec(from_zone="y", to_zone="x", bandwidth_bytes_per_s=3, latency_ns=4)
    cluster = world(zone_links=(link,))
    assert cluster.link("b:0", "a0:0") == (4, 3)
    assert cluster.link("a0:0", "b:0") == (100, 10)


def test_a_zone_link_from_a_zone_to_itself_joins_its_nodes() -> None:
    link = ZoneLinkSpec(from_zone="x", to_zone="x", bandwidth_bytes_per_s=3, latency_ns=4)
    cluster = world(zone_links=(link,), between_nodes=None)
    assert cluster.link("a0:0", "a1:0") == (4, 3)


def test_a_node_without_link_has_that_of_its_device_type() -> None:
    node = NodeSpec(name="n", device="h100-sxm", count=2)
    # NVLink of an H100: 900 GB/s in both directions together.
    assert ClusterSpec(name="c", nodes=(node,)).link("n:0", "n:1").bytes_per_s == 450 * 10**9


def test_a_type_of_the_file_hides_that_of_the_catalogue() -> None:
    mine = world().device_type("l4").model_copy(update={"memory_bytes": 5})
    assert world(device_types={"l4": mine}).device("a0:0").spec.memory_bytes == 5


def test_price_counts_every_copy() -> None:
    node = NodeSpec(name="a", copies=3, device="l4", price_micro_usd_per_h=7)
    cluster = world(nodes=(node, NodeSpec(name="b", device="l4", price_micro_usd_per_h=5)))
    assert cluster.price_micro_usd_per_h == 3 * 7 + 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a0:7", 'no device "a0:7" in cluster world; did you mean "a0:1"?'),
        ("gpu", 'no device "gpu" in cluster world; known: a0:0, a0:1, a1:0, a1:1, b:0'),
    ],
)
def test_a_device_that_is_not_there(name: str, message: str) -> None:
    for ask in (world().device, lambda name: world().link("a0:0", name)):
        with pytest.raises(UsageError) as caught:
            ask(name)
        assert str(caught.value) == message


def test_local() -> None:
    cluster = ClusterSpec.local(3, memory_bytes=10)
    assert cluster.devices == ("local:0", "local:1", "local:2")
    assert cluster.device("local:2").spec.memory_bytes == 10
    assert cluster.link("local:0", "local:2") == cluster.link("local:2", "local:0")


def test_local_needs_a_worker() -> None:
    with pytest.raises(UsageError, match="a local cluster of 0 workers; it needs at least 1"):
        ClusterSpec.local(0)


def test_json_round_trip() -> None:
    assert ClusterSpec.model_validate_json(world().model_dump_json()) == world()


def test_the_example_of_the_docstring() -> None:
    example = (cluster_module.__doc__ or "").split("::\n", 1)[1].split("Bandwidths and")[0]
    text = "\n".join(line.removeprefix("    ") for line in example.splitlines())
    cluster = parse_toml(text, ClusterSpec, file="docstring")
    assert cluster.devices[7:9] == ("a0:7", "a1:0")
    assert cluster.link("a0:0", "b:0") == (30_000_000, 1_250_000_000)  # 10 Gbit/s
    assert cluster.link("b:0", "a0:0") == (30_000_000, 625_000_000)  # 5 Gbit/s
    assert cluster.price_micro_usd_per_h == 2 * 12_500_000
