"""The cluster: nodes, their devices, and the links inside and between nodes.

::

    name = "two-zones"

    [[nodes]]
    name = "a"                   # devices a0:0 ... a0:7, a1:0 ... a1:7
    copies = 2
    device = "a100-80g-sxm"      # of the catalogue, or a [device.NAME] of this file
    count = 8
    zone = "us-east"
    price = "12.50 USD/h"        # of one node

    [[nodes]]
    name = "b"                   # without copies the name stands alone: b:0
    device = "l4"
    zone = "us-west"

    [between_nodes]              # in one zone
    bandwidth = "200 Gbit/s"
    latency = "5 us"

    [between_zones]              # where zone_links says nothing else
    bandwidth = "10 Gbit/s"
    latency = "30 ms"

    [[zone_links]]               # this direction only
    from = "us-west"
    to = "us-east"
    bandwidth = "5 Gbit/s"
    latency = "30 ms"

Bandwidths and latencies are those of one direction of one pair of devices. Links inside a node
are those of the device type unless the node has a table ``link`` of its own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Annotated, NamedTuple, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from evener.errors import UsageError
from evener.spec.catalogue import device_catalogue
from evener.spec.complaints import closest
from evener.spec.device import DeviceSpec, LinkSpec
from evener.spec.fields import LayerName, MicroUsdPerH, Name, Problem, Problems, Spec

_MOST_DEVICES = 1_000_000

Size = Annotated[int, Field(gt=0, le=_MOST_DEVICES)]


class Link(NamedTuple):
    """One direction between two devices. bytes_per_s = 0 means no limit (the same device)."""

    latency_ns: int
    bytes_per_s: int


@dataclass(frozen=True)
class Device:
    """One device of a cluster.

    name: stable, node and position: ``node0:1``. type: the name of its device type.
    """

    name: str
    node: str
    zone: str
    type: str
    spec: DeviceSpec


class NodeSpec(Spec):
    """A node, or ``copies`` equal ones named ``name`` and a number from 0.

    device: the name of the device type. count: devices in a node. price_micro_usd_per_h: of one
    node. link: between two devices of the node; None means the device type's own.
    host_link_devices: how many neighbouring devices share one link to the memory of the node.
    """

    name: LayerName
    copies: Size | None = None
    device: Name
    count: Size = 1
    zone: Name = "default"
    price_micro_usd_per_h: MicroUsdPerH = 0
    link: LinkSpec | None = None
    host_link_devices: Size = 1

    @property
    def names(self) -> tuple[str, ...]:
        if self.copies is None:
            return (self.name,)
        return tuple(f"{self.name}{copy}" for copy in range(self.copies))


class ZoneLinkSpec(LinkSpec):
    """The link from devices in one zone to devices in another, in this direction."""

    from_zone: Name = Field(validation_alias="from")
    to_zone: Name = Field(validation_alias="to")


class ClusterSpec(Spec):
    """Nodes and links. device_types: types of this file, besides those of the catalogue."""

    name: Name
    device_types: dict[Name, DeviceSpec] = Field(default={}, validation_alias="device")
    nodes: tuple[NodeSpec, ...]
    between_nodes: LinkSpec | None = None
    between_zones: LinkSpec | None = None
    zone_links: tuple[ZoneLinkSpec, ...] = ()

    @classmethod
    def local(cls, num_workers: int, *, memory_bytes: int = 4 * 2**30) -> Self:
        """Processes on this machine, each taken for a device: ``local:0``, ``local:1``, ...

        memory_bytes: what one process may use. Rates and links are of the order of one CPU core
        and loopback TCP; a profile measured on the machine replaces them.
        """
        if num_workers < 1:
            raise UsageError(f"a local cluster of {num_workers} workers; it needs at least 1")
        cpu = device_catalogue()["cpu-core"].model_copy(update={"memory_bytes": memory_bytes})
        node = NodeSpec(name="local", device="cpu", count=num_workers)
        return cls(name=f"local-{num_workers}", device_types={"cpu": cpu}, nodes=(node,))

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The names of all devices, in the order of the file."""
        return tuple(self._by_name)

    def device(self, name: str) -> Device:
        """The device of that name. Raises UsageError with the nearest names when there is none."""
        if name not in self._by_name:
            raise UsageError(_unknown_device(name, self))
        return self._by_name[name]

    def link(self, source: str, target: str) -> Link:
        """Latency and bandwidth from device ``source`` to device ``target``.

        Raises UsageError when the cluster has no such device.
        """
        a, b = self.device(source), self.device(target)
        if source == target:
            return Link(0, 0)
        link = self._inside[a.node] if a.node == b.node else self._zone_link(a.zone, b.zone)
        assert link is not None, "validation leaves no pair without a link"
        return Link(link.latency_ns, link.bandwidth_bytes_per_s)

    def host_links(self, devices: Sequence[str]) -> tuple[Link, ...]:
        """Per device, latency and bandwidth to the memory of its host, and back.

        Raises UsageError that names all types of device for which the link is not known.
        """
        types = [self.device(name).type for name in devices]
        found = {name: self.device_type(name).host for name in dict.fromkeys(types)}
        missing = [_no_host_link(name) for name, host in found.items() if host is None]
        if missing:
            raise UsageError("activations cannot be moved to host memory", missing)
        return tuple(
            Link(host.latency_ns, host.bandwidth_bytes_per_s)
            for host in (found[name] for name in types)
            if host is not None
        )

    def host_groups(self, devices: Sequence[str]) -> tuple[int, ...]:
        """Per device, the first of all given ones with which it shares a link to their host."""
        keys = [self._host_link_of[name] for name in devices]
        return tuple(map(keys.index, keys))

    def shared_host_links(self, devices: Sequence[str]) -> tuple[Link, ...]:
        """As ``host_links``, while all of the given devices copy at once."""
        groups = self.host_groups(devices)
        return tuple(
            Link(link.latency_ns, link.bytes_per_s // groups.count(group))
            for link, group in zip(self.host_links(devices), groups, strict=True)
        )

    def device_type(self, name: str) -> DeviceSpec:
        """The device type of that name, of this file or else of the catalogue."""
        return self.device_types.get(name) or device_catalogue()[name]

    @property
    def price_micro_usd_per_h(self) -> int:
        """Of all nodes."""
        return sum(node.price_micro_usd_per_h * len(node.names) for node in self.nodes)

    @cached_property
    def _by_name(self) -> dict[str, Device]:
        return {
            f"{name}:{position}": Device(
                name=f"{name}:{position}",
                node=name,
                zone=node.zone,
                type=node.device,
                spec=self.device_type(node.device),
            )
            for node in self.nodes
            for name in node.names
            for position in range(node.count)
        }

    @cached_property
    def _host_link_of(self) -> dict[str, tuple[str, int]]:
        """Per device, its node and the number of the link to the host within it."""
        return {
            f"{name}:{position}": (name, position // node.host_link_devices)
            for node in self.nodes
            for name in node.names
            for position in range(node.count)
        }

    @cached_property
    def _inside(self) -> dict[str, LinkSpec]:
        """The link inside each node that has two devices."""
        links = {}
        for node in self.nodes:
            link = node.link or self.device_type(node.device).link
            links.update({name: link for name in node.names if link is not None})
        return links

    @cached_property
    def _across(self) -> dict[tuple[str, str], LinkSpec]:
        """The link between each ordered pair of zones that has one of its own."""
        return {(link.from_zone, link.to_zone): link for link in self.zone_links}

    def _zone_link(self, source: str, target: str) -> LinkSpec | None:
        if source == target:
            return self._across.get((source, target)) or self.between_nodes
        return self._across.get((source, target)) or self.between_zones

    @field_validator("nodes")
    @classmethod
    def _nodes_are_known_and_distinct(
        cls, nodes: tuple[NodeSpec, ...], info: ValidationInfo
    ) -> tuple[NodeSpec, ...]:
        found: list[Problem] = []
        if "device_types" in info.data:  # else the error is there
            known = {**info.data["device_types"], **device_catalogue()}
            found += [
                ((position, "device"), _unknown_device_type(node.device, known))
                for position, node in enumerate(nodes)
                if node.device not in known
            ]
        if not nodes:
            found.append(((), "is empty; a cluster has at least one node"))
        num_devices = sum(node.count * (node.copies or 1) for node in nodes)
        if num_devices > _MOST_DEVICES:
            raise Problems([*found, ((), _too_many_devices(num_devices))])
        owner: dict[str, str] = {}
        for position, node in enumerate(nodes):
            twice = next((name for name in node.names if name in owner), None)
            if twice is not None:
                found.append(((position, "name"), _name_taken(twice, owner[twice])))
            owner |= dict.fromkeys(node.names, f"nodes[{position}]")
        if found:
            raise Problems(found)
        return nodes

    @model_validator(mode="after")
    def _every_pair_has_a_link(self) -> Self:
        found: list[Problem] = []
        for position, node in enumerate(self.nodes):
            if node.count > 1 and node.names[0] not in self._inside:
                found.append((("nodes", position, "link"), _no_inner_link(node.device)))
        num_nodes = Counter(node.zone for node in self.nodes for _ in node.names)
        for zone, number in num_nodes.items():
            if number > 1 and self._zone_link(zone, zone) is None:
                found.append((("between_nodes",), _no_node_link(zone, number)))
        found += [
            (("between_zones",), _no_zone_link(source, target))
            for source, target in permutations(num_nodes, 2)
            if self._zone_link(source, target) is None
        ]
        for position, link in enumerate(self.zone_links):
            found += [
                (("zone_links", position, key), _unknown_zone(zone, num_nodes))
                for key, zone in (("from", link.from_zone), ("to", link.to_zone))
                if zone not in num_nodes
            ]
        if found:
            raise Problems(found)
        return self


def _unknown_device_type(name: str, known: Iterable[str]) -> str:
    return f'unknown device type "{name}"{closest(name, known)}'


def _unknown_device(name: str, cluster: ClusterSpec) -> str:
    near = closest(name, cluster.devices if len(cluster.devices) <= 32 else cluster.devices[:8])
    return f'no device "{name}" in cluster {cluster.name}{near}'


def _name_taken(name: str, owner: str) -> str:
    return f'gives a second node "{name}", the first is of {owner}; rename one'


def _too_many_devices(number: int) -> str:
    return f"have {number} devices together; at most {_MOST_DEVICES} are supported"


def _no_host_link(device_type: str) -> str:
    return (
        f'device type "{device_type}" has no link to its host; add host = {{ bandwidth = '
        f'"32 GB/s", latency = "8 us" }} (or what it is) to [device.{device_type}], or plan '
        "without offload"
    )


def _no_inner_link(device: str) -> str:
    return f"is missing, and device type {device} has no link; add bandwidth and latency"


def _no_node_link(zone: str, number: int) -> str:
    return f"is missing; the {number} nodes of zone {zone} need its bandwidth and latency"


def _no_zone_link(source: str, target: str) -> str:
    return f"is missing, and zone_links has no link from {source} to {target}; add one of them"


def _unknown_zone(zone: str, zones: Iterable[str]) -> str:
    return f'no node is in zone "{zone}"{closest(zone, zones)}'
