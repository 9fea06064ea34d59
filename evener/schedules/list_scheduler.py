"""Greedy list scheduling: every idle worker takes the best of the actions that can start.

The schedules of several papers are this with their own priorities (``zb_1p``, ``adaptra``,
``adaptis_greedy``).  Times decide the order, so the result fits the costs that it was made for.
Ties in time go to the lower worker: the same input gives the same schedule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules import list_kernel
from evener.schedules.entry import PipelineTimes
from evener.schedules.list_kernel import NEVER, NOBODY, Int, Rule, State, Taken, World

KIND_ORDER = (Kind.F, Kind.I, Kind.W)


@dataclass(frozen=True)
class Priorities:
    """What an idle worker prefers among the actions that can start.

    order: the kinds F, I, W, the preferred one first.
    after_backward: the same when the worker's last action was a backward; None means ``order``.
    later_stage_first: the kinds of which the later stage goes first, then the smaller microbatch;
        of the others the smallest microbatch, then the earlier stage.
    least_forwards: per worker, a backward does not start before so many forwards; None means any
        number.  A worker whose memory holds fewer does not wait, and if that leaves others waiting
        for good, nobody waits any longer.
    most_forwards: per worker, a forward does not start after so many before the first backward.
    overlap_messages: what needs a message that left after the worker's last action had begun lets
        everything else go first, as such a message does not hide behind that action.
    at_once: (kind, microbatch) that do not.
    patient: a W does not start if it would delay an F or I that is known to be on its way.
    split_backward: write I and W; otherwise B, which takes the time of both.
    """

    order: tuple[Kind, Kind, Kind] = (Kind.I, Kind.F, Kind.W)
    after_backward: tuple[Kind, Kind, Kind] | None = None
    later_stage_first: frozenset[Kind] = frozenset()
    least_forwards: tuple[int, ...] | None = None
    most_forwards: tuple[int, ...] | None = None
    overlap_messages: bool = False
    at_once: frozenset[tuple[Kind, int]] = frozenset()
    patient: bool = False
    split_backward: bool = True


class ListWorld:
    """Stages on their workers with their times: what priorities are tried on.

    times: as the schedule's owner knows them.  A worker never holds more than its ``cap_bytes``,
        and the cap never stops it for good: room for one microbatch of each other stage is kept.
    num_workers: may exceed the highest worker in use.
    workers: per stage the worker, for all microbatches; or per stage a row of workers, one per
        microbatch, for schedules that hold a stage more than once.

    Raises ScheduleError if a worker's cap has no room for one microbatch of each of its stages.
    """

    def __init__(
        self,
        times: PipelineTimes,
        *,
        num_workers: int,
        num_microbatches: int,
        workers: Sequence[int] | Sequence[Sequence[int]],
    ) -> None:
        self.num_workers = num_workers
        self.num_microbatches = num_microbatches
        self.num_stages = len(times.forward_ns)
        table = np.asarray(workers, dtype=np.int64)
        if table.ndim == 1:
            table = np.repeat(table[:, None], num_microbatches, axis=1)
        self._whole_backward = _arrays(times, table, num_workers, split_backward=False)
        self._split_backward = _arrays(times, table, num_workers, split_backward=True)
        _require_room(self._split_backward)

    def empty_run(self, *, split_backward: bool = True) -> "ListRun":
        """A run with room for all actions, of which none is written down yet."""
        arrays = self._split_backward if split_backward else self._whole_backward
        num_actions = (3 if split_backward else 2) * len(arrays.lane)
        taken = Taken(*(np.empty(num_actions, dtype=np.int64) for _ in Taken._fields))
        return ListRun(self, arrays, taken, split_backward)

    def run(self, priorities: Priorities) -> "ListRun":
        """Let every worker follow the priorities until all is done."""
        run = self.empty_run(split_backward=priorities.split_backward)
        rule = _rule(priorities, run.arrays)
        count = list_kernel.run(run.arrays, rule, _start(run.arrays), run.taken)
        num_actions = len(run.taken.cell)
        assert count == num_actions, f"stuck after {count} of {num_actions} under {priorities}"
        return run

    def fill(self, when: Int, *, patient: bool = False) -> "ListRun | None":
        """Give every worker its F and I in a fixed order, and let W fill the waits and make room.

        when: [F and I, stage, microbatch], numbers in whose order a worker takes them.
        patient: a W does not start if it would delay the next F or I.

        None if the caps have no room for that order.
        """
        run = self.empty_run()
        arrays = run.arrays
        rule = _rule(Priorities(patient=patient), arrays)
        count = list_kernel.run(
            arrays, rule._replace(turn=_turns(arrays, when), fixed=1), _start(arrays), run.taken
        )
        return run if count == len(run.taken.cell) else None


@dataclass(frozen=True)
class ListRun:
    """What came out: the actions with their times."""

    world: ListWorld
    arrays: World
    taken: Taken
    split_backward: bool

    @cached_property
    def worker(self) -> Int:
        """Per action, its worker."""
        workers: Int = self.arrays.worker[self.arrays.lane[self.taken.cell]]
        return workers

    @cached_property
    def end_ns(self) -> Int:
        """Per action, its end."""
        lane = self.arrays.lane[self.taken.cell]
        ends: Int = self.taken.start_ns + self.arrays.duration_ns[self.taken.kind, lane]
        return ends

    @property
    def when(self) -> Int:
        """[F and I, stage, microbatch], the place of each; for ``ListWorld.fill``."""
        when = np.zeros((3, self.world.num_stages, self.world.num_microbatches), dtype=np.int64)
        stage = self.arrays.stage[self.arrays.lane[self.taken.cell]]
        microbatch = self.arrays.microbatch[self.taken.cell]
        when[self.taken.kind, stage, microbatch] = np.arange(len(stage))
        return when[:2]

    @property
    def step_ns(self) -> int:
        """When the last action ends."""
        return int(self.end_ns.max())

    @property
    def span_ns(self) -> int:
        """The longest time of a worker from the start of its first to the end of its last action.

        What a step costs where no worker waits for the others at its end.
        """
        first = np.full(self.world.num_workers, NEVER)
        last = np.zeros(self.world.num_workers, dtype=np.int64)
        np.minimum.at(first, self.worker, self.taken.start_ns)
        np.maximum.at(last, self.worker, self.end_ns)
        return int((last - np.minimum(first, last)).max())

    def schedule(self, name: str) -> Schedule:
        """The order that each worker followed."""
        backward = Kind.I if self.split_backward else Kind.B
        kinds = (Kind.F, backward, Kind.W)
        stage = self.arrays.stage[self.arrays.lane[self.taken.cell]]
        microbatch = self.arrays.microbatch[self.taken.cell]
        workers = []
        for worker in range(self.world.num_workers):
            mine = np.flatnonzero(self.worker == worker)
            columns = (column[mine].tolist() for column in (stage, self.taken.kind, microbatch))
            workers.append(tuple(Action(s, kinds[k], m) for s, k, m in zip(*columns, strict=True)))
        return Schedule(name, self.world.num_stages, self.world.num_microbatches, tuple(workers))


def capped(times: PipelineTimes, workers: Sequence[int], *, num_held: int) -> PipelineTimes:
    """Let no worker hold more than so many microbatches of each of its stages take.

    workers: per stage, its worker; all have a stage.

    A cap that is tighter stays.
    """
    limits = [0] * (max(workers) + 1)
    for worker, *sizes in zip(
        workers, times.activation_bytes, times.weight_gradient_bytes, strict=True
    ):
        limits[worker] += num_held * max(sizes)
    caps = limits if times.cap_bytes is None else map(min, limits, times.cap_bytes)
    return replace(times, cap_bytes=tuple(caps))


def _arrays(times: PipelineTimes, workers: Int, num_workers: int, *, split_backward: bool) -> World:
    num_stages, num_microbatches = workers.shape
    lanes = sorted({(w, s) for s in range(num_stages) for w in workers[s].tolist()})
    cells = [
        (lane, microbatch)
        for lane, (worker, stage) in enumerate(lanes)
        for microbatch in np.flatnonzero(workers[stage] == worker).tolist()
    ]
    lane, microbatch = np.array(cells, dtype=np.int64).T.copy()
    worker, stage = np.array(lanes, dtype=np.int64).T.copy()
    cell_of = np.full((num_stages + 2, num_microbatches), NOBODY)
    cell_of[stage[lane], microbatch] = np.arange(len(cells))
    after = cell_of[stage[lane] + 1, microbatch]
    before = cell_of[stage[lane] - 1, microbatch]
    weight_ns = np.array(times.weight_grad_ns)
    return World(
        first_lane=np.searchsorted(worker, np.arange(num_workers + 1)),
        first_cell=np.searchsorted(lane, np.arange(len(lanes) + 1)),
        worker=worker,
        stage=stage,
        lane=lane,
        microbatch=microbatch,
        after=after,
        before=before,
        after_ns=_message_ns(times.forward_message_ns, stage[lane], worker[lane], after),
        before_ns=_message_ns(times.backward_message_ns, stage[lane] - 1, worker[lane], before),
        duration_ns=np.array(
            [
                times.forward_ns,
                np.array(times.input_grad_ns) + (0 if split_backward else weight_ns),
                weight_ns,
            ]
        )[:, stage],
        held_bytes=_held_bytes(times, split_backward=split_backward)[:, stage],
        cap_bytes=np.array(times.cap_bytes or (NEVER,) * num_workers),
    )


def _message_ns(per_link: tuple[int, ...], link: Int, worker: Int, target: Int) -> Int:
    """Per cell, the time of its message over the link; none to a neighbour on the same worker."""
    if not per_link:
        return np.zeros(len(link), dtype=np.int64)
    message_ns: Int = np.array(per_link)[np.clip(link, 0, len(per_link) - 1)]
    return np.where(worker[target] == worker, 0, message_ns)


def _held_bytes(times: PipelineTimes, *, split_backward: bool) -> Int:
    # From F on, room is kept for the larger of the two that a cell holds one after the other.
    weight = np.array(times.weight_gradient_bytes) if split_backward else 0
    activation = np.array(times.activation_bytes)
    none = np.zeros_like(activation)
    return np.array([np.maximum(activation, weight), none + weight, none])


def _rule(priorities: Priorities, world: World) -> Rule:
    num_workers, most_cells = len(world.cap_bytes), len(world.lane)
    orders = (priorities.order, priorities.after_backward or priorities.order)
    at_once = np.full((3, world.microbatch.max() + 1), int(not priorities.overlap_messages))
    for kind, microbatch in priorities.at_once:
        at_once[KIND_ORDER.index(kind), microbatch] = 1
    return Rule(
        rank=np.array([[order.index(kind) for kind in KIND_ORDER] for order in orders]),
        weights=np.array(
            [
                (1, -most_cells) if kind in priorities.later_stage_first else (most_cells, 1)
                for kind in KIND_ORDER
            ]
        ),
        least_forwards=np.array(priorities.least_forwards or (0,) * num_workers),
        most_forwards=np.array(priorities.most_forwards or (NEVER,) * num_workers),
        at_once=at_once,
        turn=np.zeros((2, 0), dtype=np.int64),
        fixed=0,
        patient=int(priorities.patient),
        split=int(priorities.split_backward),
    )


def _turns(world: World, when: Int) -> Int:
    """[F and I, cell], the rank of each among those of its worker."""
    worker = np.tile(world.worker[world.lane], 2)
    order = np.lexsort((when[:, world.stage[world.lane], world.microbatch].ravel(), worker))
    turn = np.empty_like(order)
    turn[order] = np.arange(len(order)) - 2 * world.first_cell[world.first_lane][worker[order]]
    return turn.reshape(2, -1)


def ready_at_start(world: World) -> Int:
    """int64[kind, cell], when each action can start: the forwards of the first stage at once."""
    ready_ns = np.full((3, len(world.lane)), NEVER)
    ready_ns[list_kernel.FORWARD, world.before == NOBODY] = 0
    return ready_ns


def _start(world: World) -> State:
    num_workers, num_lanes = len(world.cap_bytes), len(world.stage)
    per_worker = [np.zeros(num_workers, dtype=np.int64) for _ in range(8)]
    return State(
        ready_ns=ready_at_start(world),
        head=np.repeat(world.first_cell[None, :-1], 3, axis=0),
        free_ns=per_worker[0],
        num_forwards=per_worker[1],
        num_backwards=per_worker[2],
        last_kind=per_worker[3] + list_kernel.FORWARD,
        last_ns=per_worker[7],
        lane_bytes=np.zeros(num_lanes, dtype=np.int64),
        next_ns=per_worker[4],
        next_cell=per_worker[5],
        next_kind=per_worker[6],
    )


def _require_room(world: World) -> None:
    needed = np.bincount(
        world.worker, world.held_bytes[list_kernel.FORWARD], minlength=len(world.cap_bytes)
    )
    short = np.flatnonzero(needed > world.cap_bytes).tolist()
    if short:
        raise ScheduleError(
            "no order keeps these memory caps",
            tuple(_no_room(w, int(needed[w]), int(world.cap_bytes[w])) for w in short),
        )


def _no_room(worker: int, needed_bytes: int, cap_bytes: int) -> str:
    return (
        f"worker {worker}: one microbatch of each of its stages takes {needed_bytes} bytes, but "
        f"{cap_bytes} bytes are left for them; raise the cap or give the worker fewer layers"
    )
