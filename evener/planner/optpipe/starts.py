"""Where the search begins: every registered schedule, with AdaOffload on top of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.planner.candidate import Candidate, Evaluated
from evener.planner.optpipe.ada_offload import ALL_AGAIN, ALL_OUT, AS_FITS, fill_memory
from evener.planner.optpipe.bench import new_bench
from evener.planner.optpipe.orders import Orders, copied, orders_of, schedule_of
from evener.planner.optpipe.play import play
from evener.planner.optpipe.world import KEEP, NEVER, OFFLOAD, RECOMPUTE, World, world_of
from evener.planner.partition.contiguous import Partition
from evener.planner.pipeline_times import pipeline_times
from evener.planner.problem import Problem
from evener.planner.registered import registered_candidates
from evener.planner.sweep import balanced
from evener.spec.cluster import Link

_ROOM = (1, 2, 4)
"""What a schedule that adapts to caps is told: more than there is, as activations may leave."""

_POLICIES = (AS_FITS, ALL_OUT, ALL_AGAIN)

_KINDS = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})


@dataclass(frozen=True)
class Start:
    """Orders with AdaOffload. schedule: where they come from. step_ns: as the search sees them.

    reserve_bytes: per worker, kept free for what the search does not see: received messages.
    """

    candidate: Candidate
    partition: Partition
    schedule: Schedule
    reserve_bytes: tuple[int, ...]
    world: World
    orders: Orders
    step_ns: int

    def judged(self, orders: Orders) -> Evaluated | None:
        """What the simulator says of them; None if copies on a shared link would have to meet."""
        bench = new_bench(self.world, orders)
        if play(self.world, orders, bench, NEVER) >= NEVER:
            return None
        schedule = schedule_of(self.world, orders, bench.played, bench.played_lengths)
        return self.candidate.judge(self.partition, schedule)

    def with_more_reserve(self, found: Evaluated) -> "Start | None":
        """The same with as much free as was missing; None if the rest is too little."""
        pairs = zip(found.outcome.peak_bytes, self.candidate.cap_bytes, strict=True)
        missing = [max(0, peak - cap) for peak, cap in pairs]
        reserve = tuple(map(int.__add__, self.reserve_bytes, missing))
        may = self.world.may.tolist()
        return started(self.candidate, self.partition, self.schedule, may, reserve)


def starts(problem: Problem, *, microbatch_size: int, may: Sequence[int]) -> Iterator[Start]:
    """Each with the best of the policies of AdaOffload; those that do not fit are left out.

    may: 1 if cells may be kept, offloaded, recomputed.
    """
    for candidate in registered_candidates(problem, microbatch_size=microbatch_size, replicas=1):
        yield from _of_candidate(candidate, may)


def _of_candidate(candidate: Candidate, may: Sequence[int]) -> Iterator[Start]:
    """With the most even partition; if not even that of equal memory fits, none."""
    regular = candidate.regular
    if not regular.kinds <= _KINDS or regular.braids:
        return
    for with_caps in (False, True):
        partition = balanced(candidate, with_caps=with_caps)
        if partition is None:
            continue
        found = [
            start
            for schedule in _schedules(candidate, partition)
            if (start := started(candidate, partition, schedule, may, (0,) * regular.num_workers))
        ]
        if found:
            yield from found
            return


def _schedules(candidate: Candidate, partition: Partition) -> Iterator[Schedule]:
    """What the entry makes of the shape; of one that adapts to caps, with more and more room."""
    entry, shape, regular = candidate.shape.entry, candidate.shape.schedule, candidate.regular
    if entry.adapted is None:
        yield regular
        return
    times = pipeline_times(regular, candidate.costs(regular, partition), candidate.cap_bytes)
    known = set()
    for room in _ROOM:
        caps = tuple(room * cap for cap in times.cap_bytes or ())
        try:
            schedule = entry(shape, replace(times, cap_bytes=caps))
        except ScheduleError:  # no order within these caps
            continue
        if schedule.workers not in known:
            known.add(schedule.workers)
            yield schedule


def started(
    candidate: Candidate,
    partition: Partition,
    schedule: Schedule,
    may: Sequence[int],
    reserve_bytes: tuple[int, ...],
) -> Start | None:
    """The fastest that AdaOffload makes of a schedule by any policy; None if none fits."""
    plain = orders_of(schedule)
    if not may[KEEP]:
        plain.mode[:] = RECOMPUTE
    best = None
    for world in _worlds(candidate, partition, schedule, may, reserve_bytes):
        bench = new_bench(world, plain)
        for policy in _POLICIES if may[OFFLOAD] and may[RECOMPUTE] else _POLICIES[:1]:
            orders = copied(plain)
            if not fill_memory(world, orders, bench, policy):
                continue
            step_ns = play(world, orders, bench, NEVER)
            if step_ns < (NEVER if best is None else best.step_ns):
                best = Start(
                    candidate, partition, schedule, reserve_bytes, world, orders, int(step_ns)
                )
    return best


def _worlds(
    candidate: Candidate,
    partition: Partition,
    schedule: Schedule,
    may: Sequence[int],
    reserve_bytes: tuple[int, ...],
) -> Iterator[World]:
    """One in which workers take turns on a shared link, and one in which all copy at once."""
    cluster, devices = candidate.problem.cluster, candidate.devices[: schedule.num_workers]
    costs = candidate.costs(schedule, partition)
    cap_bytes = list(map(int.__sub__, candidate.cap_bytes, reserve_bytes))

    def world(links: Sequence[Link] | None, groups: Sequence[int]) -> World:
        return world_of(schedule, costs, links=links, groups=groups, cap_bytes=cap_bytes, may=may)

    apart = range(len(devices))
    if not may[OFFLOAD]:
        yield world(None, apart)
        return
    groups = cluster.host_groups(devices)
    yield world(cluster.host_links(devices), groups)
    if len(set(groups)) < len(groups):
        yield world(cluster.shared_host_links(devices), apart)
