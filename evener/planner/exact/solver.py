"""CP-SAT (OR-Tools), loaded when it is first needed, that can be told to stop."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

NUM_THREADS = 2
"""Of every solve: what it finds depends on them, and must not on the machine."""

_LOOK_S = 0.05
"""How often it is asked whether to stop."""


@cache
def cp_sat() -> Any:
    """The module; it takes half a second to load, and few commands need it."""
    return import_module("ortools.sat.python.cp_model")


@dataclass(frozen=True)
class Solved:
    """What a solve came to.

    bound: no solution has a smaller objective; None if there is no solution at all.
    """

    solver: "CpSolver"
    has_solution: bool
    bound: int | None

    def value(self, variable: "IntVar") -> int:
        """In the best solution."""
        return int(self.solver.value(variable))


def minimized(
    model: "CpModel",
    *,
    stop: Callable[[], bool],
    seconds: float | None = None,
    repeatable: bool = True,
) -> Solved:
    """Solve a model that has an objective.

    stop: asked many times a second; True ends the solve with the best solution so far.
    seconds: limit on the time that it takes; of a repeatable solve, on work that is counted in
        seconds of a machine of its own.
    repeatable: whether the same model has the same answer, unless it is stopped. Otherwise threads
        race, which is faster.
    """
    module = cp_sat()
    solver: CpSolver = module.CpSolver()
    solver.parameters.num_workers = NUM_THREADS
    solver.parameters.interleave_search = repeatable
    if seconds is not None and repeatable:
        solver.parameters.max_deterministic_time = seconds
    elif seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(solver.solve, model)
        try:
            while wait([future], timeout=_LOOK_S).not_done:
                if stop():
                    solver.stop_search()
        finally:  # an interrupt must not wait for the solver
            solver.stop_search()
    status = future.result()
    if status == module.MODEL_INVALID:
        raise AssertionError(f"CP-SAT refuses the model: {model.validate()}")
    bound = None if status == module.INFEASIBLE else int(solver.best_objective_bound)
    return Solved(solver, status in (module.OPTIMAL, module.FEASIBLE), bound)
