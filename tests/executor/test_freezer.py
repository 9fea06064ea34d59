"""A training that freezes goes through its phases, on all workers alike."""

from typing import Any

import pytest
from torch import Tensor

from evener.executor.train import StepResult, Trainer
from evener.ir.freezing import WHOLE_PPM, Freezing
from evener.schedules import ScheduleShape, one_f_one_b, split_backward

SCHEDULE = one_f_one_b(ScheduleShape(2, 3))
HALF = Freezing.uniform(SCHEDULE, 500_000)


def frozen_plan(tiny: Any, freezing: Freezing = HALF, **freeze: Any) -> Any:
    return replace_freezing(
        tiny.plan(SCHEDULE, ((0, 2), (2, 3)), seed=5), freezing, {"max_share": 1.0, **freeze}
    )


def replace_freezing(plan: Any, freezing: Freezing, freeze: dict[str, Any]) -> Any:
    job = type(plan.job).model_validate({**plan.job.model_dump(), "freeze": freeze})
    values = {name: getattr(plan, name) for name in type(plan).model_fields}
    return type(plan)(**{**values, "job": job, "freezing": freezing})


def train(tiny: Any, plan: Any, num_steps: int) -> list[list[tuple[StepResult, dict[str, Tensor]]]]:
    """Per worker and step, the result and the gradients."""

    def work(trainer: Trainer) -> list[tuple[StepResult, dict[str, Tensor]]]:
        found = []
        for _ in range(num_steps):
            gradients = tiny.gradients_of(trainer)
            found.append((trainer.step({"inputs": tiny.rows(3)}), gradients))
        return found

    return tiny.train(plan, tiny.mlp, work)


def test_the_phases(tiny: Any) -> None:
    plan = frozen_plan(tiny, warmup_steps=1, monitor_steps=2, ramp_steps=2)
    workers = train(tiny, plan, 8)
    steps = [result.freezing for result, _ in workers[0]]
    assert [result.freezing for result, _ in workers[1]] == steps
    everything = Freezing.uniform(SCHEDULE, WHOLE_PPM)
    assert steps[:5] == [None, None, None, everything, everything]
    # Then half, then all of what the linear program found, which is not what the plan says.
    found = steps[7]
    assert found is not None
    assert found != HALF
    assert steps[5:] == [found.scaled(1, 2), found, found]
    for worker in workers:
        # Timelines are measured for the monitoring, and given to nobody who did not ask.
        assert [result.timeline for result, _ in worker] == [None] * 8
        for step in (3, 4):
            assert worker[step][1] == {}, "nothing learns while everything is frozen"
        assert all(gradients for step, (_, gradients) in enumerate(worker) if step < 3)


def test_without_monitoring_the_shares_are_the_plans(tiny: Any) -> None:
    plan = frozen_plan(tiny, warmup_steps=1, monitor_steps=0, ramp_steps=0)
    steps = [result.freezing for result, _ in train(tiny, plan, 3)[0]]
    assert steps == [None, HALF, HALF]


@pytest.mark.parametrize("is_split", [False, True])
def test_a_microbatch_that_freezes_everything_adds_nothing(tiny: Any, is_split: bool) -> None:
    freezing = Freezing(((0, WHOLE_PPM, 0), (WHOLE_PPM, 0, 0)))
    plan = frozen_plan(tiny, freezing, monitor_steps=0, ramp_steps=0)
    if is_split:
        plan = replace_freezing(
            tiny.plan(split_backward(SCHEDULE), ((0, 2), (2, 3))),
            freezing,
            {"max_share": 1.0, "monitor_steps": 0, "ramp_steps": 0},
        )
    ours = tiny.merged([worker[0][1] for worker in train(tiny, plan, 1)])
    rows = tiny.rows(3)
    # Stage 0 (layers 0 and 1) learns from rows 0 and 2, stage 1 (layer 2) from 1 and 2; the mean is
    # over all 3 in both.
    front = tiny.whole(tiny.seeded(tiny.mlp), rows[[0, 2]], count=3)
    back = tiny.whole(tiny.seeded(tiny.mlp), rows[1:], count=3)
    tiny.assert_close(
        ours, {name: (back if name.startswith("2.") else front)[name] for name in front}
    )


def test_who_does_not_freeze_pays_nothing(tiny: Any) -> None:
    def work(trainer: Trainer) -> bool:
        trainer.step({"inputs": tiny.rows(3)})
        return trainer._step_loop(0, 1, False)._engine is trainer.engine

    assert tiny.train(tiny.plan(SCHEDULE, ((0, 2), (2, 3))), tiny.mlp, work) == [True, True]


def test_evaluation_freezes_nothing(tiny: Any) -> None:
    plan = frozen_plan(tiny, monitor_steps=0, ramp_steps=0)

    def work(trainer: Trainer) -> tuple[StepResult, bool]:
        before = trainer.evaluate({"inputs": tiny.rows(3)})
        trainer.step({"inputs": tiny.rows(3)})
        return before, all(p.requires_grad for p in trainer.model.parameters.values())

    for result, all_learn in tiny.train(plan, tiny.mlp, work):
        assert result.freezing is None
        assert all_learn


def test_accumulated_batches_are_frozen_too(tiny: Any) -> None:
    everything = Freezing.uniform(SCHEDULE, WHOLE_PPM)
    plan = frozen_plan(tiny, everything, monitor_steps=0, ramp_steps=0)

    def work(trainer: Trainer) -> bool:
        trainer.accumulate({"inputs": tiny.rows(3)})
        return all(p.grad is None for p in trainer.model.parameters.values())

    assert tiny.train(plan, tiny.mlp, work) == [True, True]
