"""Plans that cut microbatches into slices of tokens, where the job asks for it."""

from dataclasses import replace

import pytest

from evener import api
from evener.cost.profile import SliceLatency
from evener.errors import PlanError, UsageError
from evener.ir.plan import Plan
from evener.planner.compare import PlannedWorld, compare
from evener.planner.find_plan import find_plan
from evener.planner.problem import Problem
from evener.planner.slicing.of_problem import slice_tokens
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec.model import ModelSpec


@pytest.fixture
def problem(make_problem):
    """4 layers of F = I = W = 40 on 4 workers, one microbatch of 4 tokens, up to 4 slices."""
    return make_problem([40, 40, 40, 40], num_workers=4, num_sequences=1, slices=4)


def solve(problem: Problem):
    return find_plan(problem.model, problem.cluster, problem.job, problem.profile)


def test_slices_are_planned_where_the_job_asks_for_them(problem):
    # Whole: 4 x 120. In 4 slices of F = I = W = 10 with a split backward: F are behind by 3, and
    # I too: (4 + 3) x 10 + (4 + 3) x 10, and the last W of worker 0: 4 x 10 between, 180 in all.
    result = solve(problem)
    assert result.best.slice_tokens == (1, 1, 1, 1)
    assert result.best.schedule.num_slices == 4
    assert result.objective_ns == 180
    assert result.lower_bound_ns <= 120  # one token may go ahead: 4 x 120 / 4
    whole = replace(problem, job=problem.job.model_copy(update={"slices": 1}))
    assert solve(whole).best.slice_tokens is None
    assert solve(whole).objective_ns > 300


def test_one_of_few_slices_is_long(problem):
    # Of two slices one has 2 of 4 tokens: 20 there and 20 back through each of 4 layers, where
    # every worker has 120 to do.
    halved = replace(problem, job=problem.job.model_copy(update={"slices": 2}))
    result = solve(halved)
    assert result.lower_bound_ns == 160
    assert result.objective_ns >= 160
    assert compare(PlannedWorld(halved), chunks=(1,), num_slices=2).lower_bound_ns == 160


def test_a_plan_of_slices_is_priced_with_its_model(problem, tmp_path):
    result = solve(problem)
    result.best.save(tmp_path / "plan.json")
    plan = Plan.load(tmp_path / "plan.json")
    costs = (plan, problem.profile, problem.cluster)
    assert api.simulate(*costs, model=problem.model).step_ns == result.objective_ns
    with pytest.raises(UsageError) as caught:
        api.simulate(*costs)
    assert str(caught.value) == (
        "the plan cuts microbatches into slices or spreads the head, and what each part costs "
        "follows from the model; give the model too, on the command line with --model"
    )
    other = problem.model.model_copy(update={"hidden_size": 2})
    with pytest.raises(PlanError, match="but this is model"):
        api.simulate(*costs, model=other)


def test_schedules_of_slices_are_compared(problem):
    found = compare(PlannedWorld(problem), chunks=(1,), num_slices=4)
    steps = {row.entry.name: row.step_ns for row in found.compared}
    assert {name for name, entry in SCHEDULES.items() if entry.slicer} <= set(steps)
    # 4 slots of 30 and 3 in front.
    assert steps["seq1f1b"] == steps["slimpipe"] == steps["terapipe"] == 7 * 30
    assert steps["gpipe"] == 4 * 120


def test_a_model_that_needs_whole_sequences_is_planned_without_slices(problem):
    mamba = {"kind": "mamba", "num_heads": 1, "head_dim": 1, "state_size": 1}
    model = ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 1,
            "layer": {f"l{place}": mamba for place in range(4)},
            "pattern": "l0 l1 l2 l3",
        }
    )
    profile = problem.profile.model_copy(update={"fingerprint": model.fingerprint()})
    stateful = replace(problem, model=model, profile=profile)
    result = solve(stateful)
    assert result.best.slice_tokens is None
    reason = "layer l0: its state runs through all tokens of a sequence"
    assert f"token slices: {reason}" in result.refused
    refused = compare(PlannedWorld(stateful), chunks=(1,), num_slices=2).refused
    assert [row.reason for row in refused if row.entry.name == "seq1f1b"] == [
        "l0: its state runs through all tokens of a sequence (and 3 more)"
    ]


def test_memory_caps_count_slices(make_problem):
    # 100 bytes a microbatch of 4 tokens, and as many for the backward; 1F1B holds 2 microbatches on
    # worker 0, Seq1F1B 4 + 1 slices of 25.
    problem = make_problem(
        [10, 10],
        num_workers=2,
        num_sequences=4,
        activation_bytes=100,
        memory_cap_bytes=160,
        slices=4,
        microbatch_size=1,
    )
    result = solve(problem)
    assert result.best.slice_tokens is not None
    assert max(result.best.predicted.peak_bytes) <= 160


def test_terapipe_cuts_by_what_was_measured(problem):
    shape = ScheduleShape(4, 1, num_slices=4)
    # Shared out, a token takes 3 x 40 / 4 for each of 4 layers on 4 stages: the more cuts the less.
    assert slice_tokens(problem, shape, "terapipe", microbatch_size=1) == (1, 1, 1, 1)
    # Measured in halves: two take (80 + 40) / 4 + 3 x 80 / 4 = 90, one 4 x 400 / 4.
    rows = ((80, 400), (40,))
    latency = SliceLatency(microbatch_size=1, sequence_length=4, latency_ns=rows)
    profile = problem.profile.model_copy(update={"slice_latencies": (latency,)})
    measured = replace(problem, profile=profile)
    assert slice_tokens(measured, shape, "terapipe", microbatch_size=1) == (2, 2)
    # With 200 for every action two take 420 + 410 + 3 x 420 = 2090, one 4 x 500.
    profile = profile.model_copy(update={"overhead_ns": 200})
    dear = replace(problem, profile=profile)
    assert slice_tokens(dear, shape, "terapipe", microbatch_size=1) == (4,)
