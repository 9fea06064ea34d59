"""The answer of every planner."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from evener.ir.plan import Plan


class Status(Enum):
    """Why the search ended; the values are sentences for people."""

    OPTIMAL = "Proven optimal: no plan of the searched kind is faster."
    SEARCHED = "The search ran to its end; a faster plan may exist within the gap."
    STOPPED = "The search was stopped; the best plan so far is given."

    @classmethod
    def of_search(cls, step_ns: int, bound_ns: int, *, stopped: bool) -> "Status":
        """What is known of a plan once its search has ended."""
        if step_ns == bound_ns:
            return cls.OPTIMAL
        return cls.STOPPED if stopped else cls.SEARCHED


@dataclass(frozen=True)
class PlanResult:
    """A plan with how good it is known to be.

    best: the plan found.
    objective_ns: its predicted step time.
    lower_bound_ns: proven: no plan of the searched kind has a shorter predicted step.
    runtime_s: how long the search took.
    stats: counters for people, such as the number of simulated candidates; ``refused`` lists
        candidates that cannot run with the reason.
    """

    best: Plan
    objective_ns: int
    lower_bound_ns: int
    status: Status
    runtime_s: float
    stats: Mapping[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """How far the plan can be from the best one, relative to the bound."""
        return self.objective_ns / max(self.lower_bound_ns, 1) - 1
