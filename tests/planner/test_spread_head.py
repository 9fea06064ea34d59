"""Plans whose head is spread over the workers, where the job asks for it."""

from dataclasses import replace

import pytest

from evener import api
from evener.cost.profile import LayerCost, Profile
from evener.errors import ExportError, PlanInfeasible, UsageError
from evener.ir.plan import Plan
from evener.planner.candidate import Candidate, Shape
from evener.planner.find_plan import find_plan
from evener.planner.problem import Problem
from evener.planner.result import Status
from evener.planner.sweep import balanced
from evener.report.summary import stage_names
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec import ClusterSpec, JobSpec, ModelSpec

LENGTH, WIDTH, ROWS, FLOAT = 8, 4, 64, 4
X_BYTES = LENGTH * WIDTH * FLOAT
KINDS = {
    "embedding": {"kind": "embedding"},
    "mlp": {"kind": "mlp", "intermediate_size": 8},
    "head": {"kind": "head"},
}


def cost(layer: str, forward_ns: int, output_bytes: int) -> LayerCost:
    return LayerCost(
        layer=layer,
        microbatch_size=1,
        sequence_length=LENGTH,
        forward_ns=forward_ns,
        backward_ns=2 * forward_ns,
        input_grad_ns=forward_ns,
        weight_grad_ns=forward_ns,
        recompute_ns=forward_ns,
        parameter_bytes=0,
        activation_bytes=output_bytes,
        weight_gradient_bytes=0,
        input_bytes=X_BYTES,
        output_bytes=output_bytes,
    )


def problem_of(*, tied: bool = False, spread: bool = True, num_slices: int = 4) -> Problem:
    """Four layers of F 400, no time for the embedding, and a head of F 1600 with its loss."""
    model = ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": WIDTH,
            "vocabulary_size": ROWS,
            "tied_embeddings": tied,
            "layer": KINDS,
            "pattern": "embedding 4 x (mlp) head",
        }
    )
    names = [f"local:{index}" for index in range(4)]
    profile = Profile(
        model="tiny",
        fingerprint=model.fingerprint(),
        device_type="cpu",
        host="paper",
        dtype="float32",
        layers=(
            cost("embedding", 0, X_BYTES),
            cost("mlp", 400, X_BYTES),
            cost("head", 1600, LENGTH * ROWS * FLOAT),
        ),
        links=tuple(
            {"from_device": a, "to_device": b, "latency_ns": 0, "bytes_per_s": 0}
            for a in names
            for b in names
            if a != b
        ),
    )
    job = JobSpec(
        global_batch_sequences=2,
        sequence_length=LENGTH,
        slices=num_slices,
        spread_head=spread,
        clip_norm=1.0,
    )
    return Problem(model, ClusterSpec.local(4), job, profile)


def plan_of(problem: Problem) -> Plan:
    """SlimPipe on four workers: two microbatches of four slices."""
    shape = ScheduleShape(4, 2, num_slices=4)
    candidate = Candidate(problem, Shape(SCHEDULES["slimpipe"], shape, 1, 1, (2, 2, 2, 2)))
    partition = balanced(candidate, with_caps=False)
    assert partition is not None
    found = candidate.evaluate(partition)
    return candidate.result(
        found, lower_bound_ns=0, status=Status.SEARCHED, runtime_s=0.0, stats={"simulated": 1}
    ).best


def test_the_chain_is_cut_as_if_it_had_no_head() -> None:
    # One layer of F 400 each; the embedding and what is left of the head take no time.
    assert plan_of(problem_of()).partition == ((0, 2), (2, 3), (3, 4), (4, 6))


def test_a_heavy_head_costs_less_and_holds_less_in_parts() -> None:
    whole, spread = plan_of(problem_of(spread=False)), plan_of(problem_of())
    assert whole.predicted is not None
    assert spread.predicted is not None
    # Whole: the last worker has the head for itself, 2 x 3 x 1600, if not more.
    assert whole.predicted.step_ns >= 9_600
    # In parts a worker has of each of 8 slices 3 x 100 of its layer, F and B of its part (100 and
    # 300): 5600 and some waiting.
    assert 5_600 <= spread.predicted.step_ns <= 7_500
    assert max(spread.predicted.peak_bytes) < max(whole.predicted.peak_bytes)


def test_what_is_simulated_is_the_plan(tmp_path) -> None:
    problem, plan = problem_of(), plan_of(problem_of())
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    costs = (loaded, problem.profile, problem.cluster)
    timeline = api.simulate(*costs, model=problem.model)
    assert plan.predicted is not None
    assert timeline.step_ns == plan.predicted.step_ns
    assert timeline.schedule.num_stages == 4 + 4 + 1
    with pytest.raises(UsageError, match="cuts microbatches into slices or spreads the head"):
        api.simulate(*costs)
    parts = [f"part {part} of 4 of the head's rows" for part in range(4)]
    assert stage_names(loaded)[4:] == (*parts, "loss")


def test_the_planner_finds_such_plans_and_bounds_them() -> None:
    problem = problem_of(num_slices=1)
    result = find_plan(problem.model, problem.cluster, problem.job, problem.profile)
    assert result.best.job.spread_head
    assert result.lower_bound_ns <= result.objective_ns
    uniform = find_plan(
        problem.model, problem.cluster, problem.job, problem.profile, planner="uniform"
    )
    assert uniform.best.lowered().num_stages > uniform.best.schedule.num_stages


def test_other_tools_know_no_parts_of_a_head(tmp_path) -> None:
    problem = problem_of(num_slices=1)
    plan = find_plan(
        problem.model, problem.cluster, problem.job, problem.profile, planner="uniform"
    ).best
    with pytest.raises(ExportError, match="the head's rows are spread over workers: torch has"):
        api.export(plan, to="torch_csv", path=tmp_path / "schedule.csv")


def test_a_tied_head_is_refused() -> None:
    with pytest.raises(PlanInfeasible) as caught:
        problem_of(tied=True)
    assert str(caught.value) == (
        "the head cannot be spread over workers\n"
        "  its head has the matrix of the embedding, which one worker holds whole; untie them, or "
        "leave spread_head out of the job"
    )
    replace(problem_of(tied=True, spread=False))
