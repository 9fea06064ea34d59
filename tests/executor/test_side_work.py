"""X in a real run: the user's callables are called where the plan says, or refused before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from evener.cost.table import CostTable
from evener.errors import UsageError
from evener.executor.session import Session
from evener.executor.side_tasks import SideTask
from evener.executor.side_work import SideCall
from evener.executor.train import Trainer, TrainOptions
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.sim import simulate

CHAIN = ((0,), (1,))


def with_rows(schedule: Schedule, *rows: str) -> Schedule:
    return replace(schedule, workers=tuple(tuple(map(parse_action, row.split())) for row in rows))


def plan_of(tiny: Any) -> Plan:
    """Two steps that take turns; the order without side work is GPipe's."""
    schedule = with_rows(tiny.schedule(CHAIN, 2), "0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1")
    plan = tiny.plan(schedule, ((0, 2), (2, 3)))
    cycle = (
        with_rows(schedule, "0F0 0F1 0X:see1 0X:see0 0B0 0B1", "1X:rest 1F0 1F1 1B0 1B1"),
        with_rows(schedule, "0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1X:rest 1B1 1X:see1"),
    )
    return plan.with_cycle(cycle)


def test_callables_are_called_in_turn_with_their_place(tiny: Any) -> None:
    # F = 1, B = 2: worker 0 waits for 1B0 from 2 to 5; worker 1 for 0F0 from 0 to 1, and from 7,
    # when it has ended, to 9.
    plan = plan_of(tiny)
    expected = simulate(plan.lowered(1), replace(CostTable.uniform(2, 2), side_ns=SIDE_NS))
    calls: list[list[Any]] = [[], []]

    def note(name: str) -> Callable[[SideCall], None]:
        def call(call: SideCall) -> None:
            assert list(call.stages) == [call.stage]
            calls[call.worker].append((name, call.stage, call.microbatch, call.bubble_ns))

        return call

    side_work = {name: note(name) for name in ("see", "rest")}

    def work(trainer: Trainer) -> Tensor:
        for _ in range(3):
            trainer.step({"inputs": tiny.rows(4)})
            trainer.accumulate({"inputs": tiny.rows(4)})
            trainer.evaluate({"inputs": tiny.rows(4)})
        return next(iter(trainer.model.parameters.values())).detach()

    first, _ = tiny.train(plan, tiny.mlp, work, side_work=side_work, expected=expected)
    see = [("see", 0, 1, 3), ("see", 0, 0, 3)]
    assert calls[0] == [*see, *see]
    assert calls[1] == [("rest", 1, None, 1), ("rest", 1, None, 0), ("see", 1, 1, 2), calls[1][0]]

    plain = tiny.plan(plan.schedule, plan.partition)
    assert torch.equal(first, tiny.train(plain, tiny.mlp, work)[0])  # it changes nothing else


SIDE_NS = {"see": 0, "rest": 0}


def nothing(call: SideCall) -> None:
    pass


def test_what_does_not_belong_to_the_plan_is_refused_before_anything_runs(tiny: Any) -> None:
    plan = plan_of(tiny)
    other = tiny.schedule(CHAIN, 2)
    expected = simulate(
        with_rows(other, "0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"), CostTable.uniform(2, 2)
    )
    options = TrainOptions(
        side_work={"see": nothing, "sea": nothing},
        side_tasks={2: [SideTask("sum", lambda: True)]},
        expected=expected,
    )
    text = (
        "plan and side work do not belong together\n"
        "  the plan has side work X:rest, but side_work has sea, see; give a callable for each "
        "name in TrainOptions(side_work=...), or plan without side work\n"
        "  side_work has sea, but the plan has rest, see; leave it out, or plan with it\n"
        "  side_tasks are for workers 2, but the plan has workers 0 to 1; give them to one of "
        "these\n"
        "  the expected timeline is of schedule tiny on 2 workers, but the plan runs another order "
        "of tiny on 2; give one of this plan, simulated or measured"
    )
    with pytest.raises(UsageError) as caught:
        Session(plan, tiny.mlp(), lambda step: {}, 1, options)
    assert str(caught.value) == text
    with pytest.raises(UsageError) as caught:
        tiny.train(plan, tiny.mlp, lambda trainer: None, side_work=options.side_work)
    assert str(caught.value).splitlines() == text.splitlines()[:3]


def test_side_work_that_nobody_gave_and_side_tasks_without_a_prediction(tiny: Any) -> None:
    tasks = {0: [SideTask("sum", lambda: True)]}
    with pytest.raises(UsageError) as caught:
        Session(plan_of(tiny), tiny.mlp(), lambda step: {}, 1, TrainOptions(side_tasks=tasks))
    assert str(caught.value) == (
        "plan and side work do not belong together\n"
        "  the plan has side work X:rest, X:see, but side_work has nothing; give a callable for "
        "each name in TrainOptions(side_work=...), or plan without side work\n"
        "  there are side tasks, but nothing says how long bubbles last; give a timeline of the "
        "plan in TrainOptions(expected=...): of `simulate`, or of a run without side tasks"
    )
