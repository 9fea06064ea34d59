"""Same seed, same answer; stopping gives the best so far."""

import os

import pytest

from evener.errors import PlanInfeasible
from evener.planner.joint.plan_joint import JointPlanner
from evener.planner.registered import registered_plans
from evener.planner.result import Status
from evener.planner.stop import NeverStop

_EFFORT = 1_000_000


def _plan(problem, *, stop=None, seed=0, num_actions=_EFFORT):
    planner = JointPlanner(num_actions)
    return planner(problem, stop=stop or NeverStop(), seed=seed, progress=lambda *_: None)


@pytest.fixture
def problem(make_problem):
    # 5 sequences do not divide by 3: one pipeline
    return make_problem([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], num_workers=3, num_sequences=5)


def test_same_seed_same_plan_on_any_number_of_cores(problem, monkeypatch):
    plans = []
    for num_cores in (1, 3):
        monkeypatch.setattr(os, "cpu_count", lambda num_cores=num_cores: num_cores)
        plans.append(_plan(problem).best)
    assert plans[0] == plans[1]


def test_better_than_every_registered_schedule(problem):
    others_ns = [plan.step_ns for plan in registered_plans(problem, microbatch_size=1, replicas=1)]
    result = _plan(problem)
    assert len(others_ns) > 10
    assert result.lower_bound_ns <= result.objective_ns < min(others_ns)
    assert result.best.schedule.name == "joint"
    assert result.status is Status.SEARCHED


def test_stop_gives_the_best_so_far(problem):
    result = _plan(problem, stop=lambda best_ns: True, num_actions=10**12)
    assert result.status is Status.STOPPED
    assert result.objective_ns == result.best.predicted.step_ns


def test_a_plan_as_fast_as_the_bound_ends_the_search(make_problem):
    # two replicas of one worker have no bubble: 2 microbatches of 3 x 70 each
    result = _plan(make_problem([5] * 14, num_workers=2, num_sequences=4), num_actions=10**12)
    assert (result.objective_ns, result.status) == (420, Status.OPTIMAL)


def test_nothing_fits(make_problem):
    problem = make_problem(
        [1] * 10, num_workers=2, num_sequences=4, activation_bytes=100, memory_cap_bytes=150
    )
    with pytest.raises(PlanInfeasible) as caught:
        _plan(problem)
    assert str(caught.value) == (
        "no plan fits\n"
        "  no worker has room for its layers and one microbatch under any start of the search; use"
        " more devices, a smaller microbatch or recompute"
    )


def test_a_plan_that_the_simulator_finds_too_large_is_searched_again(make_candidate):
    # messages of up to 60 bytes wait in buffers of which the judge knows nothing
    candidate = make_candidate(
        1, workers=2, microbatches=5, layers=8, message_bytes=60, memory_cap_bytes=700
    )
    result = _plan(candidate.problem)
    assert max(result.best.predicted.peak_bytes) <= 700
    assert result.best.schedule.name == "joint"
