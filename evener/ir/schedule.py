"""A schedule: one ordered tuple of actions per worker.

For every (stage, microbatch, slice) exactly one worker runs the forward, and the same worker runs
its recompute and backward.  Placement, data parallelism, interleaving and directions are all read
from who runs what; nothing else states them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from evener.ir.action import Action, Kind

Cell: TypeAlias = tuple[int, int, int | None]
"""(stage, microbatch, slice): the unit of work that one worker owns."""

COMPUTE_KINDS = frozenset({Kind.F, Kind.B, Kind.I, Kind.W, Kind.R, Kind.X})
OFFLOAD_KINDS = frozenset({Kind.OFFLOAD, Kind.FREE, Kind.RELOAD})
MESSAGE_KINDS = frozenset({Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B})
CELL_KINDS = COMPUTE_KINDS | MESSAGE_KINDS | OFFLOAD_KINDS


@dataclass(frozen=True)
class Updates:
    """The optimizer updates that a schedule runs one after another without a flush between them.

    number: how many; update u takes the gradients of the u-th of as many equal runs of
        microbatches. After STEPs of updates 0 to v - 1 a stage has version v of its weights.
    staleness: the most updates that may be missing in the weights that a forward reads: version
        u - staleness or later. Less than ``number``.
    stashed: whether all actions of update u read version max(0, u - staleness), of which a stage
        keeps staleness + 1.  Otherwise each reads what is there at its place in the list, so that
        a forward and its backward may read versions up to ``staleness`` apart.
    """

    number: int = 1
    staleness: int = 0
    stashed: bool = False


_ONE_UPDATE = Updates()


@dataclass(frozen=True)
class Schedule:
    """Who does what in which order, from one flush to the next.

    name: the generator's name, for people.
    num_stages, num_microbatches, num_slices: sizes of the three indices.
    workers: per worker, its actions in the order in which it issues them.
    edges: stage graph as (producer, consumer) pairs; None means the chain 0-1-2-...
    braids: forwards that run interleaved, as one, with the action right behind them.
    updates: how many optimizer updates it makes, and how stale weights may be.

    Building one checks nothing: ``ir.check`` does.
    """

    name: str
    num_stages: int
    num_microbatches: int
    workers: tuple[tuple[Action, ...], ...]
    num_slices: int = 1
    edges: tuple[tuple[int, int], ...] | None = None
    braids: frozenset[Action] = frozenset()
    updates: Updates = _ONE_UPDATE

    @property
    def num_workers(self) -> int:
        return len(self.workers)

    @property
    def num_actions(self) -> int:
        return sum(map(len, self.workers))

    @property
    def update_size(self) -> int:
        """Microbatches of one update."""
        return self.num_microbatches // self.updates.number

    def update_ns(self, run_ns: int) -> int:
        """The time of one update, of a run from flush to flush: their mean, rounded up."""
        return -(-run_ns // self.updates.number)

    def update_of(self, action: Action) -> int:
        """The update that an action belongs to."""
        if self.updates.number == 1 or action.microbatch is None:
            return 0
        whole_stage = action.kind not in CELL_KINDS
        return action.microbatch if whole_stage else action.microbatch // self.update_size

    @cached_property
    def stage_edges(self) -> tuple[tuple[int, int], ...]:
        """The stage graph with the default chain written out."""
        if self.edges is not None:
            return self.edges
        return tuple((stage, stage + 1) for stage in range(self.num_stages - 1))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Per stage, the stages whose forward output it reads."""
        return tuple(
            tuple(a for a, b in self.stage_edges if b == stage) for stage in range(self.num_stages)
        )

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Per stage, the stages that read its forward output."""
        return tuple(
            tuple(b for a, b in self.stage_edges if a == stage) for stage in range(self.num_stages)
        )

    @cached_property
    def runner(self) -> dict[Cell, int]:
        """The worker that runs the forward of each cell (the first one listed, if several do)."""
        runner: dict[Cell, int] = {}
        for worker, action in self.actions():
            if action.kind is Kind.F and action.microbatch is not None:
                runner.setdefault((action.stage, action.microbatch, action.slice), worker)
        return runner

    @cached_property
    def workers_of_stage(self) -> tuple[tuple[int, ...], ...]:
        """Per stage, the workers that hold it in ascending order: its gradient group."""
        holders: list[set[int]] = [set() for _ in range(self.num_stages)]
        for (stage, _, _), worker in self.runner.items():
            if 0 <= stage < self.num_stages:
                holders[stage].add(worker)
        return tuple(tuple(sorted(group)) for group in holders)

    @cached_property
    def stages_of_worker(self) -> tuple[tuple[int, ...], ...]:
        """Per worker, the stages that it holds in ascending order."""
        return tuple(
            tuple(s for s in range(self.num_stages) if worker in self.workers_of_stage[s])
            for worker in range(self.num_workers)
        )

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of action that occur."""
        return frozenset(action.kind for _, action in self.actions())

    @property
    def is_lowered(self) -> bool:
        """Whether messages are written out (``ir.passes`` inserts them)."""
        return not self.kinds.isdisjoint(MESSAGE_KINDS)

    def actions(self) -> Iterator[tuple[int, Action]]:
        """Every (worker, action), worker by worker, in list order: the *flat order*."""
        for worker, actions in enumerate(self.workers):
            for action in actions:
                yield worker, action


def side_work_names(schedules: Iterable[Schedule]) -> list[str]:
    """The names of all X actions, sorted."""
    actions = (action for schedule in schedules for _, action in schedule.actions())
    return sorted({str(action.name) for action in actions if action.kind is Kind.X})


def without_side_work(schedule: Schedule) -> Schedule:
    """The same schedule without its X actions."""
    return _filtered(schedule, lambda action: action.kind is not Kind.X)


def compute_only(schedule: Schedule) -> Schedule:
    """What a plan keeps of a schedule that may be lowered: compute actions and offloads."""
    return _filtered(schedule, lambda action: action.kind in COMPUTE_KINDS | OFFLOAD_KINDS)


def _filtered(schedule: Schedule, keeps: Callable[[Action], bool]) -> Schedule:
    workers = tuple(tuple(filter(keeps, actions)) for actions in schedule.workers)
    return replace(schedule, workers=workers)
