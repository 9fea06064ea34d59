"""Side work placed into the bubbles of a schedule, greedily, over as many steps as it needs.

The rule is PipeFisher's (Osawa et al., "PipeFisher: Efficient Training of Large Language Models
Using Pipelining and Fisher Information Matrices", MLSys 2023, section 3.2): walk through the
bubbles in time, and into each put the first unit, by priority, that is ready and fits with some
slack; what is left over goes into the bubbles of the following steps.

No other action moves: with side work in it, a step takes what it takes without.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from evener.cost.table import CostTable
from evener.errors import PlanInfeasible
from evener.ir.action import Action, Kind
from evener.ir.passes import lower
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import COMPUTE_KINDS, Schedule
from evener.ir.timeline import Timeline
from evener.sim.engine import simulate
from evener.spec.side_work import AFTER_BACKWARD, AFTER_FORWARD, SideWorkSpec
from evener.units import format_ns

BACKWARD = frozenset({Kind.B, Kind.I})
_AFTER = {AFTER_FORWARD: frozenset({Kind.F}), AFTER_BACKWARD: BACKWARD}

SLACK_PERCENT = 5
"""A unit is placed only where one that takes so much longer would fit."""


@dataclass(frozen=True)
class SideUnit:
    """One piece of side work.

    worker: who does it. action: the X that stands for it.
    after: kinds of action; the unit may start once one of them has run on its stage and
        microbatch in the first step, and at any time in later steps. Empty: at any time.
    needs: names of side work of the same stage; all units of that name, on all workers, come first.
    """

    worker: int
    action: Action
    duration_ns: int
    after: frozenset[Kind] = frozenset()
    needs: tuple[str, ...] = ()

    @property
    def reserved_ns(self) -> int:
        """What it must have to itself, slack included."""
        return self.duration_ns + -(-self.duration_ns * SLACK_PERCENT // 100)

    @property
    def group(self) -> tuple[int, str]:
        return self.action.stage, str(self.action.name)


def units_of_job(schedule: Schedule, side_work: Sequence[SideWorkSpec]) -> list[SideUnit]:
    """All pieces of a job's side work, by priority. schedule: compute-only, of one replica."""
    units = []
    for work in side_work:
        if work.after in _AFTER:
            units += [
                SideUnit(
                    worker,
                    action._replace(kind=Kind.X, name=work.name),
                    work.time_ns,
                    _AFTER[work.after],
                )
                for worker, action in schedule.actions()
                if action.kind is Kind.F
            ]
            continue
        needs = () if work.after is None else (work.after,)
        units += [
            SideUnit(worker, Action(stage, Kind.X, name=work.name), work.time_ns, needs=needs)
            for stage, holders in enumerate(schedule.workers_of_stage)
            for worker in holders
        ]
    return units


@dataclass(frozen=True)
class Bubble:
    """A time in which a worker would wait. position: in its compute-only list, what comes next."""

    position: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class PlacedUnit:
    """A unit, the step that does it and when: ``start_ns`` counts from the start of that step."""

    unit: SideUnit
    step: int
    start_ns: int


@dataclass(frozen=True)
class Filling:
    """Side work and who does it when.

    schedules: compute-only, of steps that follow one another; then it begins anew.
    placed: in the order of time. side_ns: for ``CostTable``.
    """

    schedules: tuple[Schedule, ...]
    placed: tuple[PlacedUnit, ...]

    @property
    def side_ns(self) -> dict[str, int]:
        return {str(one.unit.action.name): one.unit.duration_ns for one in self.placed}


def fill_bubbles(
    schedule: Schedule,
    costs: CostTable,
    units: Sequence[SideUnit],
    *,
    lowered: Schedule | None = None,
) -> Filling:
    """Place all units, each once, in as few steps as the greedy rule needs.

    schedule: compute-only, without side work; of one replica. units: by priority.
    lowered: all replicas of the schedule, lowered; ``lower(schedule)`` by default. A bubble of
        several replicas is what all of them have.

    Raises PlanInfeasible that names all units which no bubble of their worker can take.
    """
    played = simulate(lower(schedule) if lowered is None else lowered, costs)
    bubbles = bubbles_of(played, schedule.num_workers)
    state = _State(schedule, units, bubbles)
    schedules: list[Schedule] = []
    while len(state.placed) < len(units):
        num_before = len(state.placed)
        schedules.append(state.fill_step(len(schedules)))
        if len(state.placed) == num_before and len(schedules) > 1:
            raise PlanInfeasible("side work does not fit into the bubbles", _misses(state))
    return Filling(tuple(schedules) or (schedule,), tuple(state.placed))


def bubbles_of(timeline: Timeline, num_workers: int) -> list[list[Bubble]]:
    """Per worker of one replica, its bubbles in order of time; shared ones of several replicas.

    timeline: of a lowered schedule. What follows the last compute action counts as far as side
    work there delays neither the step nor an exchange with others.
    """
    copies = [_bubbles_of_worker(timeline, w) for w in range(timeline.schedule.num_workers)]
    shared = []
    for worker in range(num_workers):
        joined = zip(*copies[worker::num_workers], strict=True)
        shared.append(
            [
                Bubble(
                    several[0].position,
                    max(bubble.start_ns for bubble in several),
                    min(bubble.end_ns for bubble in several),
                )
                for several in joined
            ]
        )
    return [[bubble for bubble in row if bubble.start_ns < bubble.end_ns] for row in shared]


def _bubbles_of_worker(timeline: Timeline, worker: int) -> list[Bubble]:
    found: list[Bubble] = []
    last_ns = free_ns = min(timeline.start_ns, default=0)
    end_ns = max(timeline.end_ns, default=0)
    updates_ns = 0
    exchanges_ns: list[int] = []
    for action, start, end in timeline.spans(worker):
        if _is_compute(action):
            found.append(Bubble(len(found), free_ns, start))
            last_ns = free_ns = end
            updates_ns, exchanges_ns = 0, []
        elif RULES[action.kind].stream is Stream.COMPUTE:  # it stands before the side work
            free_ns = max(free_ns, end)
            updates_ns += end - start
        elif action.kind is Kind.NORM or (action.kind is Kind.REDUCE and action.peer is not None):
            exchanges_ns.append(start)
    # Behind the last compute action, side work stands before exchanges and updates.
    limit_ns = min(exchanges_ns, default=end_ns - updates_ns)
    return [*found, Bubble(len(found), last_ns, limit_ns)]


class _State:
    """What is placed so far, and the filling of one step after the other.

    left: per worker, what is not placed yet, by priority.
    """

    def __init__(
        self, schedule: Schedule, units: Sequence[SideUnit], bubbles: list[list[Bubble]]
    ) -> None:
        self.schedule = schedule
        self.left: list[list[SideUnit]] = [[] for _ in bubbles]
        for unit in units:
            self.left[unit.worker].append(unit)
        self.bubbles = bubbles
        self.placed: list[PlacedUnit] = []
        self._undone = Counter(unit.group for unit in units)
        self._done_ns: dict[tuple[int, str], int] = dict.fromkeys(self._undone, 0)
        self._positions = [
            {action: position for position, action in enumerate(filter(_is_compute, actions))}
            for actions in schedule.workers
        ]

    def fill_step(self, step: int) -> Schedule:
        """The schedule of the next step, with what fits into it."""
        inserted: list[dict[int, list[Action]]] = [defaultdict(list) for _ in self.bubbles]
        self._done_ns = dict.fromkeys(self._undone, 0)
        free_ns = [0] * len(self.bubbles)
        moments = [(row[0].start_ns, worker) for worker, row in enumerate(self.bubbles) if row]
        heapq.heapify(moments)
        waiting = set(moments)

        def look(moment_ns: int, worker: int) -> None:
            if (moment_ns, worker) not in waiting:
                waiting.add((moment_ns, worker))
                heapq.heappush(moments, (moment_ns, worker))

        while moments:
            now_ns, worker = moment = heapq.heappop(moments)
            waiting.discard(moment)
            bubble = self._bubble_at(worker, max(now_ns, free_ns[worker]))
            if bubble is None:
                continue
            start_ns = max(now_ns, free_ns[worker], bubble.start_ns)
            if start_ns > now_ns:
                look(start_ns, worker)
                continue
            unit = self._first_fitting(worker, bubble, start_ns, is_first=step == 0)
            if unit is None:
                look(bubble.end_ns, worker)
                continue
            inserted[worker][bubble.position].append(unit.action)
            free_ns[worker] = start_ns + unit.reserved_ns
            look(free_ns[worker], worker)
            for released in self._place(unit, step, start_ns):
                look(self._done_ns[unit.group], released)
        return self._with(inserted)

    def _bubble_at(self, worker: int, now_ns: int) -> Bubble | None:
        """The one that contains the moment, or the next one."""
        return next((bubble for bubble in self.bubbles[worker] if bubble.end_ns > now_ns), None)

    def _first_fitting(
        self, worker: int, bubble: Bubble, now_ns: int, *, is_first: bool
    ) -> SideUnit | None:
        for unit in self.left[worker]:
            if (
                now_ns + unit.reserved_ns <= bubble.end_ns
                and all(self._is_done(unit.action.stage, name, now_ns) for name in unit.needs)
                and (not is_first or not unit.after or self._has_run(unit, bubble.position))
            ):
                return unit
        return None

    def _is_done(self, stage: int, name: str, now_ns: int) -> bool:
        return not self._undone[stage, name] and self._done_ns.get((stage, name), 0) <= now_ns

    def _has_run(self, unit: SideUnit, before: int) -> bool:
        positions = self._positions[unit.worker]
        makers = (unit.action._replace(kind=kind, name=None) for kind in unit.after)
        return any(positions.get(maker, before) < before for maker in makers)

    def _place(self, unit: SideUnit, step: int, start_ns: int) -> set[int]:
        """Note the unit as done; the workers that may go on when it has ended."""
        self.left[unit.worker].remove(unit)
        self.placed.append(PlacedUnit(unit, step, start_ns))
        self._undone[unit.group] -= 1
        end_ns = start_ns + unit.reserved_ns
        self._done_ns[unit.group] = max(self._done_ns[unit.group], end_ns)
        if self._undone[unit.group]:
            return set()
        stage, name = unit.group
        return {
            other.worker
            for other in chain(*self.left)
            if other.action.stage == stage and name in other.needs
        }

    def _with(self, inserted: Sequence[dict[int, list[Action]]]) -> Schedule:
        workers = []
        for actions, side_work in zip(self.schedule.workers, inserted, strict=True):
            row: list[Action] = []
            position, last = 0, sum(map(_is_compute, actions))
            for action in actions:
                if _is_compute(action):
                    row += (*side_work.get(position, ()), action)
                    position += 1
                    row += side_work.get(last, ()) if position == last else ()
                else:
                    row.append(action)
            workers.append(tuple(row))
        return replace(self.schedule, workers=tuple(workers))


def _is_compute(action: Action) -> bool:
    return action.kind in COMPUTE_KINDS


def _misses(state: _State) -> list[str]:
    """One line per worker and name, of what is too long itself if there is any."""
    longest_ns = [
        max((bubble.end_ns - bubble.start_ns for bubble in row), default=0) for row in state.bubbles
    ]
    left = list(chain(*state.left))
    too_long = [unit for unit in left if unit.reserved_ns > longest_ns[unit.worker]]
    texts = (_too_long(unit, longest_ns[unit.worker]) for unit in too_long or left)
    return list(dict.fromkeys(texts))


def _too_long(unit: SideUnit, longest_ns: int) -> str:
    return (
        f"X:{unit.action.name} of stage {unit.action.stage} takes "
        f"{format_ns(unit.reserved_ns, digits=4)} with {SLACK_PERCENT} % of slack, the longest "
        f"bubble of worker {unit.worker} is {format_ns(longest_ns, digits=4)}; cut the work into "
        "smaller parts, or take a schedule with longer bubbles"
    )
