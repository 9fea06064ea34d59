"""What rank 0 makes of the timelines of a run, which are simulated here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evener.errors import UsageError
from evener.ir.plan import Plan
from evener.planner.find_plan import find_plan
from evener.planner.problem import Problem
from evener.planner.replan import replanner
from evener.planner.replan.options import Replan
from evener.planner.replan.replanner import Replanner, Switch
from evener.planner.replan.world import World

MS = 1_000_000


class Run:
    """Steps of 2 to a window under whatever plan is in force."""

    def __init__(self, small: Any, **options: Any) -> None:
        self.small = small
        self.said: list[str] = []
        self.plan: Plan = small.plan()
        self.real: World = small.world()
        self.step = 0
        cluster, profile = small.cluster(), small.profile()
        settings = {"window": 2, "tell": self.said.append, **options}
        self.replanner = Replanner(Replan(cluster, profile, **settings), self.plan, self.real)

    def steps(self, number: int) -> list[Switch]:
        """Make steps; every second time the plan may change."""
        switches = []
        for _ in range(number):
            self.replanner.note(self.small.measured(self.plan, self.real))
            self.step += 1
            if self.step % 2 == 0 and (switch := self.replanner.proposal(self.step)) is not None:
                self.plan = switch.plan
                switches.append(switch)
        return switches


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems that were searched, by the planner itself and at once."""
    problems: list[Problem] = []

    class AtOnce:
        def __init__(self, problem: Problem, planner: str, *, time_limit_s: float) -> None:
            del time_limit_s
            problems.append(problem)
            self.answer = find_plan(
                problem.model, problem.cluster, problem.job, problem.profile, planner=planner
            )

    monkeypatch.setattr(replanner, "Search", AtOnce)
    return problems


def test_nothing_is_said_of_a_run_as_planned(small: Any, searches: list[Problem]) -> None:
    run = Run(small)
    assert run.steps(20) == []
    assert (run.said, searches) == ([], [])


def test_a_change_lasts_two_windows(small: Any, searches: list[Problem]) -> None:
    run = Run(small)
    run.steps(8)  # 2 that do not count, 3 windows
    run.real = run.real.with_speeds({1: 3.0})
    run.steps(2)
    run.real = small.world()
    run.steps(6)
    assert (run.said, searches) == ([], [])


def test_a_slow_worker_gets_less(small: Any, searches: list[Problem]) -> None:
    run = Run(small)
    run.steps(8)
    run.real = run.real.with_speeds({1: 3.0})
    (switch,) = run.steps(10)
    # Two windows, and the plan changes right behind them.
    assert switch.step == 12
    assert switch.reason == "local:1 takes 3.00 times as long as expected"
    assert switch.after_ns == run.real.step_ns(switch.plan) < switch.before_ns
    found, promised, measured = run.said
    assert found == f"re-plan: {switch.reason}; sweep searches for 60 s at most"
    assert promised.startswith(f"re-plan: {switch.plan.schedule.name} from step 12 on, ")
    # Simulated times are what was predicted.
    assert measured.startswith(f"re-plan: measured {switch.gain:.2f}x as fast")
    assert measured.endswith(f"predicted was {switch.gain:.2f}x")


def test_a_slow_link_changes_the_order_first(small: Any, searches: list[Problem]) -> None:
    run = Run(small)
    run.steps(8)
    run.real = run.real.with_latencies({(0, 1): 9 * MS, (1, 0): 9 * MS})
    first = run.steps(4)[0]
    assert first.plan.partition == small.plan().partition
    assert first.plan.schedule != small.plan().schedule
    assert len(searches) == 1


def test_no_better_plan_is_said_once(small: Any, searches: list[Problem]) -> None:
    run = Run(small, least_gain=9.0)
    run.steps(8)
    run.real = run.real.with_speeds({1: 3.0})
    assert run.steps(20) == []
    assert len(run.said) == 2
    assert run.said[1].startswith(
        "re-plan: no better plan, training goes on as it is: the best one"
    )
    assert len(searches) == 1


def test_a_search_that_failed_is_said_once(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        answer = "its process ended with -9: "

        def __init__(self, *question: Any, **limit: Any) -> None:
            del question, limit

    monkeypatch.setattr(replanner, "Search", Failing)
    run = Run(small)
    run.steps(8)
    run.real = run.real.with_speeds({1: 3.0})
    assert run.steps(20) == []
    assert run.said[1:] == [
        "re-plan: the search failed, training goes on as it is: its process ended with -9: "
    ]


def test_a_search_that_outlives_the_run_is_ended_and_said(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    class Endless:
        answer = None

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def close(self) -> None:
            ended.append(True)

    monkeypatch.setattr(replanner, "Search", Endless)
    run = Run(small)
    run.real = small.world().with_speeds({1: 2.0})
    run.steps(8)
    run.replanner.close()
    assert ended == [True]
    assert run.said[-1] == "re-plan: training ends before a search that still ran"


def test_a_profile_that_was_wrong_is_replaced_by_what_was_measured(
    small: Any, searches: list[Problem]
) -> None:
    """Layers narrow and head take twice as long as described, on whichever worker they are."""
    run = Run(small)
    ways = ("forward", "backward")
    run.real = run.real.with_layers({(n, way): 2.0 for n in ("narrow", "head") for way in ways})
    run.steps(6)
    (problem,) = searches
    assert "takes 2.00 times as long forward as its profile says" in run.said[0]
    for rank in ("rank0", "rank1"):
        forward_ns = [cost.forward_ns for cost in problem.layer_costs(rank, 1)]
        assert forward_ns == pytest.approx([1 * MS, 3 * MS, 4 * MS, 4 * MS], rel=1e-6)


def test_a_start_with_a_safe_plan(small: Any, searches: list[Problem]) -> None:
    run = Run(small, at_start=True)
    run.steps(20)
    assert len(searches) == 1
    assert run.said[0].startswith("re-plan: the profile is now a measured one; sweep searches")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"planner": "oracle"}, 'there is no planner "oracle"'),
        ({"time_limit_s": 0}, "time_limit_s is 0; give more than 0"),
        ({"threshold": 1.0}, "threshold is 1; give more than 1, such as 1.2"),
        ({"window": 0}, "window is 0; give 1 or more steps"),
        ({"least_gain": -1.0}, "least_gain is -1; give 0 or more, such as 0.05"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], text: str, small: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Replan(small.cluster(), small.profile(), **options)
    assert text in str(caught.value)


def test_plans_that_cannot_change_are_refused(small: Any) -> None:
    replan = Replan(small.cluster(), small.profile())
    plan = small.plan()
    job = plan.job.model_copy(update={"asynchronous": True})
    updates: Callable[..., Any] = type(plan.schedule.updates)
    schedule = replace(plan.schedule, updates=updates(2, 1))
    several = plan.model_copy(update={"job": job, "schedule": schedule})
    with pytest.raises(UsageError) as caught:
        replan.world(several, object())
    assert caught.value.violations == (
        (
            "its plan makes several updates between two flushes, of which a part would be lost at a"
            " switch; plan without, or train without re-planning"
        ),
        "its model is a module; give its description as well, Replan(model=ModelSpec...)",
    )
