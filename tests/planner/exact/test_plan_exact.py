"""The exact planner's answers and refusals."""

from dataclasses import replace

import pytest

from evener.errors import PlanInfeasible, UsageError
from evener.planner.exact.plan_exact import plan_exact
from evener.planner.result import Status
from evener.planner.stop import MaxRuntime, NeverStop


def _plan(problem, stop=None):
    return plan_exact(problem, stop=stop or NeverStop(), seed=0, progress=lambda *_: None)


def test_optimum_above_every_bound(make_problem):
    # F I W = 2 2 2 on each of 2 layers, 1 microbatch, 2 workers: 12 on one worker, or on two
    # 2 + 2, then 2 (I of the last) while nothing else can run, 2 (I) beside W, 2 (W): 10
    result = _plan(make_problem([2, 2], num_workers=2, num_sequences=1))
    assert (result.objective_ns, result.lower_bound_ns) == (10, 10)
    assert result.status is Status.OPTIMAL


def test_a_stopped_proof_has_an_answer(make_problem):
    problem = make_problem([1, 6, 6, 1], num_workers=3, num_sequences=5)
    stopped, proven = _plan(problem, MaxRuntime(0)), _plan(problem)
    assert stopped.status is Status.STOPPED
    assert proven.status is Status.OPTIMAL
    # what a regular schedule takes, and what every bound and the optimum say
    assert (stopped.objective_ns, stopped.lower_bound_ns) == (112, 97)
    assert (proven.objective_ns, proven.lower_bound_ns) == (97, 97)


def test_too_large(make_problem):
    with pytest.raises(UsageError) as caught:
        _plan(make_problem([1] * 11, num_workers=4, num_sequences=10))
    assert str(caught.value) == (
        "the exact planner is for small problems: 11 layers, 10 microbatches and 4 workers are "
        "1,320 pairs of an action and a worker, and it takes at most 1,200; use --planner joint"
    )


def test_no_room(make_problem):
    problem = make_problem(
        [1, 1], num_workers=2, num_sequences=2, activation_bytes=100, memory_cap_bytes=150
    )
    with pytest.raises(PlanInfeasible) as caught:
        _plan(problem)
    assert str(caught.value) == (
        "no plan fits\n  no placement of the layers on the workers keeps under their memory caps, "
        "in any order; use more devices, a smaller microbatch or recompute"
    )


def test_no_room_for_messages(make_problem):
    # One layer has 32 bytes (parameter, gradient, two moments), two have 64. Apart they fit, until
    # the second worker has received 100 bytes: 82 more than the cap, which is itself less.
    problem = make_problem(
        [1, 1], num_workers=2, num_sequences=2, parameter_bytes=8, memory_cap_bytes=50
    )
    large = [
        cost.model_copy(update={"input_bytes": 100, "output_bytes": 100})
        for cost in problem.profile.layers
    ]
    profile = problem.profile.model_copy(update={"layers": tuple(large)})
    with pytest.raises(PlanInfeasible, match="no placement of the layers"):
        _plan(replace(problem, profile=profile))
