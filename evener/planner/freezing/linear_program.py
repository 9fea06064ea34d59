"""TimelyFreeze (2602.05754): which share of each microbatch's backward to freeze, exactly.

A linear program over the dependency graph of a schedule.  Variables are the start of every action
and the frozen share of every freezable one (B or W), whose time falls linearly from that with
nothing to that with everything frozen.  An action starts when all that it waits for has ended, as
in ``sim``.  The mean share of a stage is capped.  The shortest step is found first; a second solve
finds, among the shares that reach it, those with the smallest sum (the paper weighs both in one
objective, the first much more).  Slices of a microbatch have one share.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from evener.cost.table import CostTable
from evener.interp.program import Program, compile_program
from evener.ir.action import Action, Kind
from evener.ir.freezing import WHOLE_PPM, Cell, Freezing
from evener.ir.schedule import Schedule
from evener.sim.engine import simulate

if TYPE_CHECKING:
    from highspy._core import _Highs

# The solver works to absolute tolerances; so the step is this long in its units.
_SCALE = 1_000.0
# Of the step, what the second solve may lose of the first one's answer.
_SLACK = 1e-9
# Of a share in parts per million, what a solver may leave below a whole number.
_ROUNDING_PPM = 1e-3


@dataclass(frozen=True)
class Shares:
    """An optimal freezing. step_ns: with exactly these shares, not rounded to integers."""

    freezing: Freezing
    step_ns: float


def best_shares(
    schedule: Schedule, costs: CostTable, *, least: Mapping[Action, int], max_share_ppm: int
) -> Shares:
    """The shares of the shortest step; of those, the least freezing.

    schedule: compute-only or lowered. costs: with nothing frozen. least: of every B and W the time
        with all parameters frozen, no less than what of it waits for all-reduces.
    max_share_ppm: cap on the mean share of each stage.

    Raises what ``sim.simulate`` raises.
    """
    full_step_ns = simulate(schedule, costs).step_ns
    program = compile_program(schedule)
    rows = _Rows(program, costs, least, unit_ns=max(1, full_step_ns) / _SCALE)
    rows.add_order()
    rows.add_caps(max_share_ppm / WHOLE_PPM, schedule.num_microbatches)
    solver = rows.solver()
    step = _minimize(solver, [rows.step])
    solver.changeColBounds(rows.step, 0.0, step + _SCALE * _SLACK)
    _minimize(solver, list(rows.share_of.values()))
    values = solver.getSolution().col_value
    share_ppm = [[0] * schedule.num_microbatches for _ in range(schedule.num_stages)]
    for (stage, microbatch), variable in rows.share_of.items():
        share = int(values[variable] * WHOLE_PPM + _ROUNDING_PPM)
        share_ppm[stage][microbatch] = min(WHOLE_PPM, share)
    return Shares(Freezing(tuple(map(tuple, share_ppm))), step * rows.unit_ns)


@dataclass
class _Rows:
    """The program as sparse rows ``lower <= row <= upper``, in units of ``unit_ns``.

    Variables are the start of each action by its flat index, then the step, then the shares.
    share_of: variable of each cell that freezing makes shorter.
    """

    program: Program
    costs: CostTable
    least: Mapping[Action, int]
    unit_ns: float
    share_of: dict[Cell, int] = field(default_factory=dict)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        actions = self.program.actions
        self.workers = self.program.worker.tolist()
        self.step = len(actions)
        self.duration_ns = [self._duration_ns(i) for i in range(len(actions))]
        # Members of a collective start as one: they share the variable of the first.
        self.start_of = list(range(len(actions)))
        for first, last in pairwise(self.program.members_ptr.tolist()):
            members = self.program.members_idx[first:last].tolist()
            longest_ns = max(self.duration_ns[i] for i in members)
            for i in members:
                self.start_of[i], self.duration_ns[i] = members[0], longest_ns
        # So do the two actions of a braid, which also end as one.
        self.braid_of: dict[int, tuple[int, int]] = {}
        for first, second in self.program.braids.tolist():
            self.braid_of[first] = self.braid_of[second] = first, second
            self.start_of[second] = first
        self.saved_ns: dict[int, int] = {}
        for index, action in enumerate(actions):
            saved_ns = self.duration_ns[index] - self.least.get(action, self.duration_ns[index])
            if saved_ns > 0:
                self.saved_ns[index] = saved_ns
                self.share_of.setdefault(_cell(action), self.step + 1 + len(self.share_of))

    def _duration_ns(self, index: int) -> int:
        program = self.program
        action, worker = program.actions[index], int(program.worker[index])
        if action.kind in (Kind.RECV_F, Kind.RECV_B):
            return 0  # it ends when its SEND has, and the latency has passed
        if action.kind in (Kind.SEND_F, Kind.SEND_B):
            return self.costs.message_ns(worker, int(program.peer_worker[index]), action)
        return self.costs.action_ns(worker, action)

    def add_order(self) -> None:
        """Every action after what it waits for, and the end of the step after all."""
        is_last = np.ones(self.step, dtype=bool)
        for before, after, delay_ns in self._edges():
            is_last[before] = False
            self._add_after(self.start_of[after], before, delay_ns)
        for index in np.flatnonzero(is_last).tolist():
            self._add_after(self.step, index, 0)

    def _edges(self) -> Iterator[tuple[int, int, int]]:
        """(what ends, what waits for it, time in between)."""
        program = self.program
        for index, action in enumerate(program.actions):
            if action.kind in (Kind.RECV_F, Kind.RECV_B):
                sender = int(program.match[index])
                yield sender, index, self._latency_ns(sender, index)
                continue
            for before in {int(program.issue_after[index]), int(program.stream_after[index])}:
                if before >= 0 and self.start_of[before] != self.start_of[index]:
                    yield before, index, 0
            first, last = program.needs_ptr[index : index + 2]
            for need in program.needs_idx[first:last].tolist():
                yield need, index, self._delay_ns(need, index)

    def _delay_ns(self, need: int, index: int) -> int:
        """Of an action that another worker needs before messages are written out."""
        source, target = self.workers[need], self.workers[index]
        action = self.program.actions[need]
        if source == target or action.kind in (Kind.REDUCE, Kind.NORM):
            return 0
        return self.costs.message_ns(source, target, action) + self._latency_ns(need, index)

    def _latency_ns(self, source: int, target: int) -> int:
        return int(self.costs.latency_ns[self.workers[source], self.workers[target]])

    def _add_after(self, variable: int, before: int, delay_ns: int) -> None:
        """variable >= start + duration - share * saved + delay of what comes before."""
        freezable = self.braid_of.get(before, (before,))[-1]
        for duration_ns, saved_ns in self._durations_ns(before):
            terms = {variable: 1.0, self.start_of[before]: -1.0}
            if saved_ns:
                share = self.share_of[_cell(self.program.actions[freezable])]
                terms[share] = saved_ns / self.unit_ns
            self._add(terms, (duration_ns + delay_ns) / self.unit_ns, inf)

    def _durations_ns(self, index: int) -> list[tuple[int, int]]:
        """An action lasts the longest of these: (with nothing frozen, what all frozen saves)."""
        if index not in self.braid_of:
            return [(self.duration_ns[index], self.saved_ns.get(index, 0))]
        first, second = self.braid_of[index]
        worker, actions = self.workers[index], self.program.actions
        waits_ns = sum(self.costs.wait_ns(worker, actions[each]) for each in (first, second))
        first_ns, second_ns = self.duration_ns[first], self.duration_ns[second]
        saved_ns = self.saved_ns.get(second, 0)
        computing = first_ns + second_ns - waits_ns, saved_ns
        # See ``cost.braid``.
        return [computing, (waits_ns, 0), (first_ns, 0), (second_ns, saved_ns)]

    def add_caps(self, max_share: float, num_microbatches: int) -> None:
        """On the mean share of each stage."""
        of_stage: dict[int, list[int]] = {}
        for (stage, _), variable in self.share_of.items():
            of_stage.setdefault(stage, []).append(variable)
        for variables in of_stage.values():
            self._add(dict.fromkeys(variables, 1.0), 0.0, max_share * num_microbatches)

    def _add(self, terms: Mapping[int, float], lower: float, upper: float) -> None:
        self.starts.append(len(self.columns))
        self.columns += terms.keys()
        self.values += terms.values()
        self.lower.append(lower)
        self.upper.append(upper)

    def solver(self) -> "_Highs":
        """A solver that has the rows and, as yet, nothing to minimize."""
        # Imported when first used: it takes a tenth of a second, and few plans freeze.
        highspy = import_module("highspy")
        num_variables = self.step + 1 + len(self.share_of)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = num_variables, len(self.lower)
        model.col_cost_ = np.zeros(num_variables)
        model.col_lower_ = np.zeros(num_variables)
        most = np.full(num_variables, inf)
        most[self.step + 1 :] = 1.0
        model.col_upper_ = most
        model.row_lower_ = np.array(self.lower)
        model.row_upper_ = np.array(self.upper)
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.array([*self.starts, len(self.columns)], dtype=np.int32)
        matrix.index_ = np.array(self.columns, dtype=np.int32)
        matrix.value_ = np.array(self.values)
        solver: _Highs = highspy._Highs()  # highspy.Highs prints a banner that cannot be silenced
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.passModel(model)
        return solver


def _cell(action: Action) -> Cell:
    assert action.microbatch is not None, f"{action} has no microbatch"
    return action.stage, action.microbatch


def _minimize(solver: "_Highs", variables: list[int]) -> float:
    """Minimize the sum of the variables alone; returns it."""
    num_variables = solver.getNumCol()
    cost = np.zeros(num_variables)
    cost[variables] = 1.0
    solver.changeColsCost(num_variables, np.arange(num_variables, dtype=np.int32), cost)
    solver.clearSolver()  # what presolve does is worth more than the last solve's basis
    solver.run()
    status = solver.modelStatusToString(solver.getModelStatus())
    assert status == "Optimal", f"freezing nothing is feasible, but the solver says: {status}"
    return float(solver.getInfo().objective_function_value)
