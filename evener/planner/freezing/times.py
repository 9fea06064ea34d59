"""How long actions take when some of a stage's parameters are frozen."""

from collections.abc import Mapping
from dataclasses import replace

from evener.cost.table import CostTable
from evener.ir.action import Action, Kind
from evener.ir.freezing import FREEZABLE_KINDS, WHOLE_PPM, Freezing
from evener.ir.schedule import Schedule


def least_ns(schedule: Schedule, costs: CostTable) -> dict[Action, int]:
    """The time of every freezable action if all parameters are frozen, where it is not measured.

    Of a whole backward the gradient of the inputs is left, of a W nothing.
    """
    return {
        action: min(
            costs.action_ns(worker, action),
            costs.action_ns(worker, action._replace(kind=Kind.I)) if action.kind is Kind.B else 0,
        )
        for worker, action in schedule.actions()
        if action.kind in FREEZABLE_KINDS
    }


def frozen_costs(
    schedule: Schedule, costs: CostTable, least: Mapping[Action, int], freezing: Freezing
) -> CostTable:
    """The costs with the times that the freezable actions of a schedule have under a freezing.

    costs: with nothing frozen. least: see ``least_ns``.

    A share takes its part of the difference: the parameters are drawn at random, so this is what
    it takes on average (TimelyFreeze, 2602.05754, takes the same).
    """
    single_ns = dict(costs.single_ns)
    for worker, action in schedule.actions():
        if action.kind not in FREEZABLE_KINDS:
            continue
        assert action.microbatch is not None, "backwards have a microbatch"
        share = freezing.of(action.stage, action.microbatch)
        full_ns = costs.action_ns(worker, action)
        if share and least[action] < full_ns:
            single_ns[action] = full_ns - (full_ns - least[action]) * share // WHOLE_PPM
    return replace(costs, single_ns=single_ns)
