"""Better orders under a fixed partition and placement: CP-SAT on windows of the schedule.

A window holds all actions of all workers that start within a span of time.  What runs before it
keeps its times, what runs after it its order, so the solver has to know of the rest only when
actions can start and how much has to run after them.  First the window is the whole schedule: often
that is solved, and then no other order is faster.  Where it is not solved in time, windows move
over the schedule until none of them brings anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from evener.planner.exact.solver import Solved, cp_sat, minimized
from evener.planner.exact.timetable import Action, Timetable
from evener.planner.joint.orders import Orders, holds_too_much, new_deck, play
from evener.planner.joint.world import BACKWARD, FORWARD, NEVER, WEIGHT, Int, World

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel

_WINDOW_ACTIONS = 100
"""Of a window that moves, on average."""


@dataclass(frozen=True)
class Improved:
    """step_ns: of the orders. least_ns: no order under this partition and placement is faster."""

    orders: Orders
    step_ns: int
    least_ns: int


@dataclass(frozen=True)
class Effort:
    """Seconds of the whole schedule at once, and of every window; how often windows move over it.

    repeatable: as in ``minimized``.
    """

    whole_s: float = 3.0
    window_s: float = 1.0
    num_sweeps: int = 4
    repeatable: bool = False


def improve_orders(
    world: World,
    orders: Orders,
    *,
    stop: Callable[[], bool],
    effort: Effort = Effort(),
) -> Improved:
    """Orders with the same partition and placement that are no slower.

    stop: asked many times a second; True ends it with the best orders so far.
    """
    search = _Search(world, orders, stop, effort)
    if not search.solve(0, search.step_ns, effort.whole_s):
        for _ in range(effort.num_sweeps):
            if stop() or not search.sweep():
                break
    return search.improved()


def one_machine_ns(table: Timetable) -> int:
    """No order is faster: every worker has to wait for its first forward and then run it all."""
    head_ns = [0]
    for stage in range(len(table.orders.worker) - 1):
        message = next(ns for _, ns in table.needed_by((stage, FORWARD, 0)))
        head_ns.append(head_ns[-1] + table.time_ns[stage, FORWARD] + message)
    loads = []
    for worker, row in enumerate(table.lists):
        if row:
            first_ns = min(head_ns[stage] for stage, _, _ in row)
            work_ns = sum(table.time_ns[stage, kind] for stage, kind, _ in row)
            loads.append(first_ns + work_ns + table.step_ns(worker))
    return max(loads)


class _Search:
    """The best orders so far."""

    def __init__(
        self, world: World, orders: Orders, stop: Callable[[], bool], effort: Effort
    ) -> None:
        self.world, self.stop, self.effort = world, stop, effort
        self.deck = new_deck(world, orders)
        self.table = Timetable(world, orders)
        self.step_ns = int(play(world, orders, self.deck, NEVER))
        self.least_ns = one_machine_ns(self.table)

    def improved(self) -> Improved:
        return Improved(self.table.orders, self.step_ns, self.least_ns)

    def sweep(self) -> bool:
        """Move a window over the schedule, each time by half of it; whether it got faster."""
        before_ns = self.step_ns
        num_actions = int(self.table.orders.length.sum())
        width_ns = max(2, self.step_ns * _WINDOW_ACTIONS // num_actions)
        for begin_ns in range(0, self.step_ns, width_ns // 2):
            if self.stop() or self.step_ns <= self.least_ns:
                break
            self.solve(begin_ns, begin_ns + width_ns, self.effort.window_s)
        return self.step_ns < before_ns

    def solve(self, begin_ns: int, end_ns: int, seconds: float) -> bool:
        """Order the actions that start in a span; whether that was solved to the end."""
        if self.step_ns <= self.least_ns:
            return True
        window = _Window(self.table, begin_ns, end_ns, (self.least_ns, self.step_ns))
        if not window.begin:
            return True
        solved = minimized(
            window.model, stop=self.stop, seconds=seconds, repeatable=self.effort.repeatable
        )
        if solved.has_solution:
            self._keep(window.orders(solved))
        is_whole = len(window.begin) == self.table.orders.length.sum()
        if is_whole and solved.bound is not None and not self.world.wire_ns.any():
            self.least_ns = max(self.least_ns, min(self.step_ns, solved.bound))
        return self.step_ns <= self.least_ns

    def _keep(self, orders: Orders) -> None:
        """If they are no slower by the judge, who knows of messages that queue."""
        step_ns = int(play(self.world, orders, self.deck, self.step_ns))
        if step_ns <= self.step_ns and not holds_too_much(self.world, orders):
            self.step_ns, self.table = step_ns, Timetable(self.world, orders)


@dataclass
class _Window:
    """The actions that start in a span as a CP-SAT model.

    between_ns: what the step may be. begin: when each action of the window starts.
    """

    table: Timetable
    begin_ns: int
    end_ns: int
    between_ns: tuple[int, int]
    begin: dict[Action, Any] = field(default_factory=dict)
    model: "CpModel" = field(init=False)

    def __post_init__(self) -> None:
        self.model = cp_sat().CpModel()
        self.step = self.model.new_int_var(*self.between_ns, "")
        self.inside = {
            action
            for action, end_ns in self.table.end_ns.items()
            if self.begin_ns <= end_ns - self.table.time_ns[action[:2]] < self.end_ns
        }
        self.needs: dict[Action, list[tuple[Action, int]]] = {each: [] for each in self.inside}
        for action in self.table.end_ns:
            for other, message_ns in self.table.needed_by(action):
                if other in self.inside:
                    self.needs[other].append((action, message_ns))
        for row in self.table.lists:
            self._run(row)
        self._order()
        if self.table.world.cap_bytes.min() < NEVER:
            for worker, row in enumerate(self.table.lists):
                self._hold(worker, row)
        self.model.minimize(self.step)

    def orders(self, solved: Solved) -> Orders:
        """The lists of a solution."""
        lists = []
        for row in self.table.lists:
            inside = [action for action in row if action in self.inside]
            first = row.index(inside[0]) if inside else 0
            ranked = sorted(inside, key=lambda action: self._key(action, solved))
            lists.append([*row[:first], *ranked, *row[first + len(inside) :]])
        return self.table.with_lists(lists)

    def _key(self, action: Action, solved: Solved) -> tuple[int, ...]:
        """Actions of no time are where their neighbours meet, in the order of their needs."""
        stage, kind, number = action
        begin_ns = solved.value(self.begin[action])
        way = stage if kind == FORWARD else -stage
        return begin_ns, begin_ns + self.table.time_ns[stage, kind], kind, number, way

    def _run(self, row: list[Action]) -> None:
        """One worker's part: not before what ran earlier, and early enough for what runs later."""
        inside = [action for action in row if action in self.inside]
        if not inside:
            return
        first = row.index(inside[0])
        free_ns = self.table.end_ns[row[first - 1]] if first > 0 else 0
        behind = row[first + len(inside) :]
        after_ns = self._with(behind[0], 0) if behind else self.table.after_ns[row[-1]]
        intervals = []
        for action in inside:
            early_ns = max(
                [
                    free_ns,
                    *(self.table.end_ns[o] + ns for o, ns in self.needs[action] if self._is_out(o)),
                ]
            )
            late_ns = max(
                [
                    after_ns,
                    *(
                        self._with(o, ns)
                        for o, ns in self.table.needed_by(action)
                        if self._is_out(o)
                    ),
                ]
            )
            own_ns = self.table.time_ns[action[:2]]
            begin = self.model.new_int_var(early_ns, self.between_ns[1] - late_ns - own_ns, "")
            self.begin[action] = begin
            self.model.add(begin + own_ns + late_ns <= self.step)
            self.model.add_hint(begin, self.table.end_ns[action] - own_ns)
            intervals.append(self.model.new_fixed_size_interval_var(begin, own_ns, ""))
        self.model.add_no_overlap(intervals)

    def _is_out(self, action: Action) -> bool:
        return action not in self.inside

    def _with(self, action: Action, message_ns: int) -> int:
        """From the end of what sends the message that starts a later action to the step's end."""
        return message_ns + self.table.time_ns[action[:2]] + self.table.after_ns[action]

    def _order(self) -> None:
        """What an action needs, and its turn among the microbatches."""
        for action in self.inside:
            begin = self.begin[action]
            stage, kind, number = action
            before = (stage, kind, number - 1)
            needs = [*self.needs[action], (before, 0)]
            for other, message_ns in needs:
                if other in self.inside:
                    ready = self.begin[other] + self.table.time_ns[other[:2]] + message_ns
                    self.model.add(begin >= ready)

    def _hold(self, worker: int, row: list[Action]) -> None:
        """What the worker keeps stays under its cap."""
        room_bytes = _room_bytes(self.table, worker)
        for stage in np.flatnonzero(self.table.orders.worker == worker).tolist():
            self._wait_for_room(stage, room_bytes)
        intervals, demands = [], []
        for since, until, size in _kept(self.table, row):
            if since not in self.inside and until not in self.inside:
                if self._starts_before(since) and not self._starts_before(until):
                    room_bytes -= size
                continue
            begin = self.begin.get(since, self.begin_ns)
            end = self.begin.get(until, self.between_ns[1])
            length = self.model.new_int_var(0, self.between_ns[1], "")
            intervals.append(self.model.new_interval_var(begin, length, end, ""))
            demands.append(size)
        self.model.add_cumulative(intervals, demands, max(0, room_bytes))

    def _wait_for_room(self, stage: int, room_bytes: int) -> None:
        """A forward that has no room before others have left memory runs behind those.

        Where so many backwards have started, so many weight gradients must have as well, or one
        backward more.  That follows from the cap, but the solver would be long in finding it.
        """
        kept, weight = _kept_bytes(self.table, stage)
        if not 0 < weight <= kept:
            return
        times = self.table.time_ns
        backward_ns, weight_ns = times[stage, BACKWARD], times[stage, WEIGHT]
        for number in range(int(self.table.world.sizes[1])):
            excess_bytes = (number + 1) * kept - room_bytes
            for backwards in range(number + 1):
                weights = -(-(excess_bytes - backwards * (kept - weight)) // weight)
                forward = stage, FORWARD, number
                behind = (stage, BACKWARD, backwards), (stage, WEIGHT, weights - 1)
                if weights <= 0 or not {forward, *behind} <= self.begin.keys():
                    continue
                begin = self.begin[forward]
                after_one = begin >= self.begin[behind[0]] + backward_ns
                after_other = begin >= self.begin[behind[1]] + weight_ns
                if weights > backwards:
                    self.model.add(after_one)
                    continue
                one_more = self.model.new_bool_var("")
                self.model.add(after_one).only_enforce_if(one_more)
                self.model.add(after_other).only_enforce_if(~one_more)
                front = stage, BACKWARD, backwards - 1
                if weights == backwards and front in self.begin:  # both of them are behind it
                    ready = self.begin[front] + backward_ns
                    self.model.add(begin >= ready + min(backward_ns, weight_ns))

    def _starts_before(self, action: Action) -> bool:
        begin_ns = self.table.end_ns[action] - self.table.time_ns[action[:2]]
        return begin_ns < self.begin_ns


def _room_bytes(table: Timetable, worker: int) -> int:
    """For what is kept of microbatches."""
    world, cut = table.world, table.orders.cut
    again = int(world.sizes[3])
    state, work, repeated = 0, 0, 0
    for stage in np.flatnonzero(table.orders.worker == worker):
        begin, end = cut[stage], cut[stage + 1]
        state += int(world.state_bytes[end] - world.state_bytes[begin])
        work = max(work, int(world.work_bytes[begin:end].max()))
        repeated = max(repeated, again * _between(world.activation_bytes, begin, end))
    return int(world.cap_bytes[worker]) - state - work - repeated


def _kept_bytes(table: Timetable, stage: int) -> tuple[int, int]:
    """Of a microbatch, from its forward until its backward, and from that until its W."""
    world = table.world
    begin, end = table.orders.cut[stage : stage + 2].tolist()
    saved = _between(world.activation_bytes, begin, end)
    weight = 0 if table.orders.whole[stage] else _between(world.weight_bytes, begin, end)
    return int(world.input_bytes[begin]) if world.sizes[3] else saved, weight


def _kept(table: Timetable, row: list[Action]) -> Iterator[tuple[Action, Action, int]]:
    """From the start of an action until that of another so many bytes are kept."""
    for stage, kind, number in row:
        saved, weight = _kept_bytes(table, stage)
        if kind == FORWARD:
            yield (stage, FORWARD, number), (stage, BACKWARD, number), saved
        elif kind == WEIGHT:
            yield (stage, BACKWARD, number), (stage, WEIGHT, number), weight


def _between(until: Int, begin: int, end: int) -> int:
    return int(until[end] - until[begin])
