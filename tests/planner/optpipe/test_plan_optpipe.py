"""The planner: never over the cap, never worse than its start, the job decides what it may do."""

from collections import Counter
from typing import Any

import pytest

from evener.errors import PlanInfeasible
from evener.ir.action import Kind
from evener.ir.plan import Plan
from evener.planner.optpipe.plan_optpipe import OptPipePlanner
from evener.planner.plan_costs import costs_of_plan
from evener.planner.problem import Problem
from evener.planner.result import PlanResult, Status
from evener.planner.stop import NeverStop
from evener.sim import simulate

MB = 10**6


def problem_of(make_problem, cap_mb: float, **job: Any) -> Problem:
    """8 layers of 1 ms on 4 workers, 8 microbatches of 1 MB per layer; 5 GB/s to the host.

    1F1B holds 4 x 2 MB on worker 0, and room for a layer's gradients: 9 MB.
    """
    return make_problem(
        [1_000_000] * 8,
        num_workers=4,
        num_sequences=8,
        activation_bytes=MB,
        memory_cap_bytes=round(cap_mb * MB),
        **job,
    )


def plan(problem: Problem, num_actions: int = 2_000_000, stop: Any = None) -> PlanResult:
    return OptPipePlanner(num_actions)(
        problem, stop=stop or NeverStop(), seed=3, progress=lambda *_: None
    )


def kinds_of(found: Plan) -> Counter[Kind]:
    return Counter(action.kind for _, action in found.schedule.actions())


def test_never_over_the_cap_and_never_worse_than_its_start(make_problem) -> None:
    problem = problem_of(make_problem, 4.5, offload=True, recompute="auto")
    begun, found = plan(problem, 0), plan(problem, 6_000_000)
    assert found.objective_ns < begun.objective_ns
    assert found.lower_bound_ns <= found.objective_ns
    predicted = found.best.predicted
    assert predicted is not None
    assert max(predicted.peak_bytes) <= 4.5 * MB
    costs = costs_of_plan(found.best, problem.profile, problem.cluster)
    timeline = simulate(found.best.lowered(), costs)
    assert timeline.step_ns == found.objective_ns
    assert timeline.peak_bytes == predicted.peak_bytes
    less = plan(problem)
    assert begun.objective_ns >= less.objective_ns >= found.objective_ns
    assert plan(problem).best == less.best  # same seed, same answer
    assert Plan.model_validate_json(found.best.model_dump_json()) == found.best


def test_the_job_says_what_may_become_of_activations(make_problem) -> None:
    offloads = plan(problem_of(make_problem, 4.5, offload=True), 0)
    recomputes = plan(problem_of(make_problem, 4.5, recompute="auto"), 0)
    nothing = plan(problem_of(make_problem, 9.5), 0)
    assert kinds_of(offloads.best)[Kind.R] == 0 < kinds_of(offloads.best)[Kind.OFFLOAD]
    assert kinds_of(recomputes.best)[Kind.OFFLOAD] == 0 < kinds_of(recomputes.best)[Kind.R]
    assert not kinds_of(nothing.best).keys() & {Kind.R, Kind.OFFLOAD}
    # "full": every cell is recomputed, and the plan says so action by action.
    full = kinds_of(plan(problem_of(make_problem, 4.5, recompute="full"), 0).best)
    assert full[Kind.R] == full[Kind.F] > 0
    assert full[Kind.OFFLOAD] == 0


def test_what_cannot_fit_is_refused(make_problem) -> None:
    with pytest.raises(PlanInfeasible) as caught:
        plan(problem_of(make_problem, 1.5, offload=True), 0)
    assert str(caught.value) == (
        "no plan fits\n  no registered schedule over all 4 devices can be brought under the memory "
        'caps; ways out: recompute = "auto", more devices or a smaller microbatch'
    )


def test_more_workers_than_layers(make_problem) -> None:
    # without any cap: memory has nothing to do with it
    with pytest.raises(PlanInfeasible) as caught:
        plan(make_problem([1, 1], num_workers=3, num_sequences=3), 0)
    assert str(caught.value) == (
        "OptPipe's search is impossible\n  the cluster has 3 devices, but the model has 2 layers, "
        "and every worker needs one; use fewer devices or the planner joint"
    )


def test_a_stop_gives_the_best_so_far(make_problem) -> None:
    asked = []

    def at_once(best_ns: int | None) -> bool:
        asked.append(best_ns)
        return True

    found = plan(problem_of(make_problem, 4.5, offload=True, recompute="auto"), stop=at_once)
    assert found.status is Status.STOPPED
    assert asked
    assert None not in asked
