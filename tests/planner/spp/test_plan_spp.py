"""Whole plans by SPP. Times are in nanoseconds; B = 2 F."""

import pytest

from evener.errors import PlanInfeasible
from evener.executor.verify import verify
from evener.planner.problem import Problem
from evener.planner.spp.plan_spp import plan_spp
from evener.planner.stop import NeverStop


def _solve(problem):
    return plan_spp(problem, stop=NeverStop(), seed=0, progress=lambda *_: None)


def test_free_links_make_every_device_a_replica(make_problem):
    # one stage on both: 2 microbatches each, 2 x 3 x 10 = 60, the load
    result = _solve(make_problem([5, 5], num_workers=2, num_sequences=4))
    assert result.best.schedule.workers_of_stage == ((0, 1),)
    assert result.objective_ns == 60 == result.lower_bound_ns


def test_a_heavy_stage_stands_on_two_workers(make_problem):
    # 3 sequences on 3 workers, links free: one stage takes 3 x 12 for one microbatch each
    result = _solve(make_problem([2, 2, 8], num_workers=3, num_sequences=3))
    assert result.objective_ns == 36


def test_gradients_of_replicas_cost_time(make_problem):
    # Links of 1 byte per ns and layers of 1000 bytes: two replicas would exchange 2 x 1000 bytes;
    # two stages take 1F1B's (4 + 1) x 15 = 75.
    problem = _with_links(
        make_problem([5, 5], num_workers=2, num_sequences=4, parameter_bytes=1000), 10**9
    )
    result = _solve(problem)
    assert result.best.partition == ((0, 1), (1, 2))
    assert result.objective_ns == 75


def test_devices_follow_the_bandwidth(make_problem):
    # 0 and 2, 1 and 3 are connected well: neighbours in the pipeline
    problem = make_problem([1] * 4, num_workers=4, num_sequences=4, parameter_bytes=10**6)
    fast = {frozenset({"local:0", "local:2"}), frozenset({"local:1", "local:3"})}
    links = tuple(
        link.model_copy(
            update={
                "bytes_per_s": 10**9,
                "latency_ns": 10 if frozenset({link.from_device, link.to_device}) in fast else 1000,
            }
        )
        for link in problem.profile.links
    )
    profile = problem.profile.model_copy(update={"links": links})
    result = _solve(Problem(problem.model, problem.cluster, problem.job, profile))
    holders = [group[0] for group in result.best.schedule.workers_of_stage]
    assert {frozenset(holders[:2]), frozenset(holders[2:])} == {
        frozenset({0, 2}),
        frozenset({1, 3}),
    }


def test_what_does_not_fit_is_refused(make_problem):
    problem = make_problem(
        [1] * 2, num_workers=2, num_sequences=4, activation_bytes=100, memory_cap_bytes=50
    )
    with pytest.raises(PlanInfeasible, match="no plan of SPP fits"):
        _solve(problem)


def test_more_devices_than_work(make_problem):
    # 2 layers of one microbatch: 2 devices at most
    with pytest.raises(PlanInfeasible) as caught:
        _solve(make_problem([1, 1], num_workers=3, num_sequences=1))
    assert str(caught.value) == (
        "SPP is impossible\n"
        "  every device is to hold a stage and to run a microbatch of it, which 2 can; the "
        "cluster has 3: use fewer, or the planner sweep"
    )


def _with_links(problem, bytes_per_s):
    links = tuple(
        link.model_copy(update={"bytes_per_s": bytes_per_s}) for link in problem.profile.links
    )
    profile = problem.profile.model_copy(update={"links": links})
    return Problem(problem.model, problem.cluster, problem.job, profile)


@pytest.mark.dist
def test_unequal_replicas_train_as_one_process_does(make_problem):
    # 4 microbatches: all layers on 3 workers take 2 x 30. With the heavy one on two of them these
    # are done at 2 + 2 x 24 and 4 + 2 x 24, and both light backwards behind: 50 + 4 + 4.
    problem = make_problem([2, 8], num_workers=3, num_sequences=4, parameter_bytes=1)
    result = _solve(problem)
    plan = result.best
    assert (result.objective_ns, plan.schedule.workers_of_stage) == (58, ((0,), (1, 2)))
    assert verify(plan).holds
