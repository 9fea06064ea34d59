"""Copies to host memory over links that several devices share."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from evener.cost.host_copies import with_host_copies
from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.sim.engine import simulate
from evener.spec.cluster import ClusterSpec


def with_copies(
    costs: CostTable,
    schedule: Schedule,
    *,
    cluster: ClusterSpec,
    devices: Sequence[str],
    num_bytes: Sequence[int] | None = None,
) -> CostTable:
    """The table with the times of copies, see ``with_host_copies``.

    devices: per worker. Where no two devices that share a link copy in the same direction at once,
    each copy has the link for itself; otherwise every copy is as slow as if all of them did.
    """
    alone = with_host_copies(
        costs, schedule, links=cluster.host_links(devices), num_bytes=num_bytes
    )
    groups = cluster.host_groups(devices)
    if len(set(groups)) == len(groups) or not meet(simulate(schedule, alone), groups):
        return alone
    links = cluster.shared_host_links(devices)
    return with_host_copies(costs, schedule, links=links, num_bytes=num_bytes)


def meet(timeline: Timeline, groups: Sequence[int]) -> bool:
    """Whether two copies in the same direction overlap. groups: per worker, equal if shared."""
    copies: dict[tuple[Kind, int], list[tuple[int, int]]] = defaultdict(list)
    for worker, kind, begin_ns, end_ns in _copies(timeline):
        copies[kind, groups[worker]].append((begin_ns, end_ns))
    return any(
        next_begin_ns < end_ns
        for spans in copies.values()
        for (_, end_ns), (next_begin_ns, _) in pairwise(sorted(spans))
    )


def _copies(timeline: Timeline) -> Iterator[tuple[int, Kind, int, int]]:
    actions = timeline.schedule.actions()
    for (worker, action), begin_ns, end_ns in zip(
        actions, timeline.start_ns, timeline.end_ns, strict=True
    ):
        if action.kind in (Kind.OFFLOAD, Kind.RELOAD) and end_ns > begin_ns:
            yield worker, action.kind, begin_ns, end_ns
