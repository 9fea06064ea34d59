"""Plans of jobs that freeze, on problems that can be worked out by hand."""

import random

import pytest

from evener.api import simulate
from evener.planner.find_plan import find_plan
from evener.spec.job import FreezeSpec


def found(problem, planner="sweep"):
    return find_plan(problem.model, problem.cluster, problem.job, problem.profile, planner=planner)


def test_uniform_stages_take_what_the_linear_program_says(make_problem):
    # 4 stages of F = I = W = 10**6, 8 microbatches: 33, and 26 where half may be frozen.
    problem = make_problem(
        [10**6] * 4, num_workers=4, num_sequences=8, freeze=FreezeSpec(max_share=0.5)
    )
    result = found(problem, planner="uniform")
    plan = result.best
    assert result.objective_ns == plan.predicted.step_ns == pytest.approx(26e6, abs=100)
    assert simulate(plan, problem.profile, problem.cluster).step_ns == result.objective_ns
    assert plan.freezing.mean_ppm == 375_000
    # 7 freeze 0.375 and are busy for all but ... of the step: 8 (3 - mean of the stage) of 26.
    busy = sum(8 * 3e6 - sum(row) for row in plan.freezing.share_ppm)
    assert plan.predicted.bubble_fraction == pytest.approx(1 - busy / (4 * 26e6), abs=1e-4)
    # The last stage's first forward comes after 3, and it has 8 x (3 - 0.5) to do.
    assert result.lower_bound_ns == 23 * 10**6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_share", [0.3, 1.0])
def test_the_bound_stays_below_and_freezing_never_costs_time(make_problem, seed, max_share):
    forward_ns = [random.Random(seed).randint(10**6, 20 * 10**6) for _ in range(5)]
    sizes = {"num_workers": 2, "num_sequences": 4}
    plain = found(make_problem(forward_ns, **sizes))
    frozen = found(make_problem(forward_ns, **sizes, freeze=FreezeSpec(max_share=max_share)))
    assert plain.best.freezing is None
    assert frozen.lower_bound_ns <= frozen.objective_ns < plain.objective_ns
    for row in frozen.best.freezing.share_ppm:
        assert sum(row) <= max_share * 1e6 * len(row)
