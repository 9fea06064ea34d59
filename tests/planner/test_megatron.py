"""The uniform grid. Times are in nanoseconds; B = 2 F."""

import pytest

from evener.errors import PlanInfeasible
from evener.planner.megatron import plan_megatron
from evener.planner.stop import NeverStop


def _solve(problem):
    return plan_megatron(problem, stop=NeverStop(), seed=0, progress=lambda *_: None)


def test_data_parallelism_where_it_divides(make_problem):
    # 2 pipelines of one worker, 2 microbatches each: 2 x 3 x 10, no bubble
    result = _solve(make_problem([5, 5], num_workers=2, num_sequences=4))
    assert result.best.replicas == 2
    assert result.objective_ns == 60


def test_interleaved_stages_where_it_does_not(make_problem):
    # 3 microbatches on 2 workers, 4 layers of F 1, B 2: 2 chunks each take (6 + 1) x 3 = 21,
    # one stage each (3 + 1) x 6 = 24
    result = _solve(make_problem([1] * 4, num_workers=2, num_sequences=3))
    assert result.best.partition == ((0, 1), (1, 2), (2, 3), (3, 4))
    assert result.best.schedule.name == "interleaved_one_f_one_b"
    assert result.objective_ns == 21


def test_memory_takes_the_pipeline(make_problem):
    # Parameters, gradients and two moments of 2 layers: 2 x 4 x 10 = 80 B > 50 B; one layer fits.
    problem = make_problem(
        [1, 1], num_workers=2, num_sequences=4, parameter_bytes=10, memory_cap_bytes=50
    )
    result = _solve(problem)
    assert (result.best.replicas, result.best.partition) == (1, ((0, 1), (1, 2)))


def test_too_few_layers(make_problem):
    with pytest.raises(PlanInfeasible) as caught:
        _solve(make_problem([1], num_workers=2, num_sequences=3))
    assert str(caught.value) == (
        "a uniform grid is impossible\n"
        "  the cluster has 2 devices, and the global batch of 3 sequences is not shared evenly by "
        "pipelines of at most 1 workers, the number of layers; use fewer devices, another batch or "
        "the planner sweep"
    )
