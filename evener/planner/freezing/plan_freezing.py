"""Freezing planned from known costs, before anything was measured with frozen parameters."""

from typing import NamedTuple

from evener.cost.table import CostTable
from evener.ir.freezing import Freezing
from evener.ir.schedule import Schedule
from evener.planner.freezing.linear_program import best_shares
from evener.planner.freezing.times import frozen_costs, least_ns


class Frozen(NamedTuple):
    """A freezing, and what actions cost under it."""

    freezing: Freezing
    costs: CostTable


def plan_freezing(schedule: Schedule, costs: CostTable, *, max_share_ppm: int) -> Frozen:
    """The best shares for a schedule under the costs that it has with nothing frozen."""
    least = least_ns(schedule, costs)
    found = best_shares(schedule, costs, least=least, max_share_ppm=max_share_ppm)
    return Frozen(found.freezing, frozen_costs(schedule, costs, least, found.freezing))
