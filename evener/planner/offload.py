"""Which activations spend a while in host memory, and how much of each.

SPPO (arXiv 2503.10377, section 5) moves of each subsequence the share whose copy hides behind the
computation of the next one: ratio x bytes = bandwidth x time of that.  Early subsequences live
longest, so they go; the last ones, whose backward is next, stay.  Here the same rule is applied to
the cells of any schedule: a copy has one compute action of its worker to hide behind on the way
out, and one on the way back.  Of the cells that can go, only as many do as the caps ask for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evener.cost.host_copies import bytes_within, with_host_copies
from evener.cost.table import CostTable
from evener.ir.memory import MemoryTable, peak_bytes
from evener.ir.passes import insert_offload, offloadable
from evener.ir.passes.insert_offload import compute_places, lives_of
from evener.ir.rules import Resource
from evener.ir.schedule import Cell, Schedule
from evener.spec.cluster import Link


@dataclass(frozen=True)
class Offloading:
    """schedule: of one replica, with the offloads. num_bytes: per stage, what leaves of a cell."""

    schedule: Schedule
    num_bytes: tuple[int, ...]


def hidden_bytes(
    schedule: Schedule,
    costs: CostTable,
    links: Sequence[Link],
    shared_bytes: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Per stage, how much can leave of every cell without holding its worker up.

    schedule: compute-only. links: per worker, to the memory of its host.
    shared_bytes: per stage, what of a cell's activations others need, and so stays.
    Where nothing can leave it is 0.
    """
    most: dict[int, int] = {}
    movable = set(offloadable(schedule))
    for worker, actions in enumerate(schedule.workers):
        places = compute_places(actions, schedule.braids)
        for cell, (begin, end) in lives_of(actions, schedule.braids).items():
            if cell not in movable:
                continue
            window_ns = min(
                # A braid takes at least as long as either of its actions.
                max(costs.action_ns(worker, action) for action in places[beside])
                for beside in (begin + 1, end - 1)
            )
            within = bytes_within(window_ns, links[worker])
            stage, _, token_slice = cell
            own = costs.memory.size_bytes(Resource.ACTIVATION, stage, token_slice)
            own = max(0, own - (shared_bytes[stage] if shared_bytes else 0))
            own = own if within is None else min(own, within)
            most[stage] = min(most.get(stage, own), own)
    return tuple(most.get(stage, 0) for stage in range(schedule.num_stages))


def plan_offload(
    schedule: Schedule,
    costs: CostTable,
    *,
    links: Sequence[Link],
    cap_bytes: Sequence[int],
    lowered: Callable[[Schedule], Schedule],
    shared_bytes: Sequence[int] | None = None,
) -> Offloading | None:
    """Offload the fewest cells, longest-lived first, with which each worker stays under its cap.

    schedule, costs: of one replica, compute-only. links, cap_bytes: per worker of it.
    lowered: what runs (of all replicas), whose memory counts. shared_bytes: see ``hidden_bytes``.

    Returns None where nothing can be offloaded. A worker that cannot stay under its cap offloads
    all that it can.
    """
    num_bytes = hidden_bytes(schedule, costs, links, shared_bytes)
    memory = with_host_copies(costs, schedule, links=links, num_bytes=num_bytes).memory
    by_worker: list[list[Cell]] = [[] for _ in schedule.workers]
    for cell in offloadable(schedule):
        if num_bytes[cell[0]]:
            by_worker[schedule.runner[cell]].append(cell)
    if not any(by_worker):
        return None

    def try_first(counts: Sequence[int]) -> tuple[Schedule, tuple[int, ...]]:
        cells = {cell for own, count in zip(by_worker, counts, strict=True) for cell in own[:count]}
        offloaded = insert_offload(schedule, cells)
        return offloaded, _peaks(lowered(offloaded), memory, schedule.num_workers)

    least, enough = [0] * len(by_worker), list(map(len, by_worker))
    while least != enough:
        counts = [(low + high) // 2 for low, high in zip(least, enough, strict=True)]
        _, peaks = try_first(counts)
        for worker, (count, peak) in enumerate(zip(counts, peaks, strict=True)):
            if peak <= cap_bytes[worker]:
                enough[worker] = count
            else:
                least[worker] = min(count + 1, enough[worker])
    offloaded, _ = try_first(enough)
    return Offloading(offloaded, num_bytes)


def _peaks(lowered: Schedule, memory: MemoryTable, num_workers: int) -> tuple[int, ...]:
    """Of the workers of the first replica; the others hold as much."""
    replicas = lowered.num_workers // num_workers
    static = memory.static_bytes[:num_workers] * replicas
    return peak_bytes(lowered, replace(memory, static_bytes=static))[:num_workers]
