"""A real model computes under the measured clock, and its measured costs predict its step."""

from dataclasses import replace
from statistics import median

import pytest

from evener.cost.table import CostTable
from evener.errors import PlanError, UsageError
from evener.executor.emulate import emulate, measured_costs
from evener.executor.emulated_model import model_engine
from evener.ir.action import Action, Kind
from evener.ir.plan import Plan
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

pytestmark = pytest.mark.dist

NUM_WORKERS, NUM_MICROBATCHES, SEQUENCE_LENGTH = 2, 6, 128


def small_model(**changes: object) -> ModelSpec:
    values = {
        "name": "small",
        "hidden_size": 192,
        "vocabulary_size": 512,
        "pattern": "embedding 2 x (attention mlp) head",
        "layer": {
            "embedding": {"kind": "embedding"},
            "attention": {"kind": "attention", "num_heads": 4, "head_dim": 48},
            "mlp": {"kind": "mlp", "intermediate_size": 768},
            "head": {"kind": "head"},
        },
    }
    return ModelSpec.model_validate({**values, **changes})


def plan_of(model: ModelSpec, schedule_name: str) -> Plan:
    return Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=((0, 2), (2, 6)),  # unequal on purpose
        devices=(("cpu:0",), ("cpu:1",)),
        microbatch_size=2,
        sequence_length=SEQUENCE_LENGTH,
        job=JobSpec.model_validate(
            {
                "global_batch_sequences": 2 * NUM_MICROBATCHES,
                "sequence_length": SEQUENCE_LENGTH,
                "clip_norm": 1.0,
            }
        ),
        schedule=SCHEDULES[schedule_name](ScheduleShape(NUM_WORKERS, NUM_MICROBATCHES)),
    )


@pytest.mark.parametrize("name", ["one_f_one_b", "zb_h1"])
def test_measured_costs_predict_the_step_of_a_real_model(name: str) -> None:
    model = small_model()
    plan = plan_of(model, name)
    costs = CostTable.uniform(NUM_WORKERS, NUM_WORKERS, latency_ns=100_000)
    timelines = emulate(
        plan.lowered(), costs, clock="measured", steps=11, make_engine=model_engine(plan, model)
    )[2:]
    differences = [
        timeline.step_ns / simulate(plan.lowered(), measured_costs([timeline], costs)).step_ns - 1
        for timeline in timelines
    ]
    assert abs(median(differences)) < 0.05


def test_another_model_is_refused() -> None:
    plan = plan_of(small_model(), "gpipe")
    with pytest.raises(PlanError):
        model_engine(plan, small_model(hidden_size=64))


def test_a_model_without_vocabulary_is_refused() -> None:
    layers = {"mlp": {"kind": "mlp", "intermediate_size": 8}}
    model = small_model(vocabulary_size=None, pattern="6 x mlp", layer=layers)
    with pytest.raises(UsageError) as caught:
        model_engine(plan_of(model, "gpipe"), model)
    assert str(caught.value) == (
        "model small cannot be emulated\n"
        "  it has no vocabulary_size to draw tokens from; give one, or use --clock wall"
    )


def test_side_work_of_a_plan_is_not_emulated_by_a_model() -> None:
    model = small_model()
    plan = plan_of(model, "one_f_one_b")
    workers = tuple((*row, Action(w, Kind.X, name="side")) for w, row in enumerate(plan.schedule.workers))
    with pytest.raises(UsageError, match="the plan has side work X:side, but side_work has nothing"):
        model_engine(plan.with_cycle([replace(plan.schedule, workers=workers)]), model)
