"""Asynchronous schedules in real processes: as fast as predicted, and any number of updates."""

from random import Random

import pytest
import torch
from torch import Tensor

from evener.executor.emulate import emulate
from evener.executor.session import Session, train_local
from evener.executor.verify import tiny_model
from evener.ir.passes import lower
from evener.ir.plan import Plan
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.sim.reference import simulate_by_events
from evener.spec.job import JobSpec
from evener.testing.random_costs import random_costs

pytestmark = pytest.mark.dist


@pytest.mark.parametrize(
    ("name", "num_workers"),
    [("pipedream_2bw", 4), ("pipedream_2bw", 8), ("amdp_2", 4), ("amdp_4", 4), ("amdp_4", 8)],
)
def test_virtual_times_equal_the_simulation(name: str, num_workers: int) -> None:
    schedule = SCHEDULES[name](ScheduleShape(num_workers, 8, num_updates=3))
    lowered = lower(schedule, tied=[(0, num_workers - 1)], clip=name != "pipedream_2bw")
    costs = random_costs(Random(num_workers), lowered)
    (played,) = emulate(lowered, costs)
    predicted = simulate(lowered, costs)
    assert played.start_ns == predicted.start_ns
    assert played.end_ns == predicted.end_ns
    assert predicted == simulate_by_events(lowered, costs)


def test_steps_are_updates_and_the_last_run_may_be_shorter() -> None:
    model = tiny_model(4, tied=True, dropout=0.0)
    plan = Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=((0, 2), (2, 4)),
        devices=(("cpu:0",), ("cpu:1",)),
        microbatch_size=1,
        sequence_length=6,
        job=JobSpec(
            global_batch_sequences=4, sequence_length=6, asynchronous=True, updates_per_flush=3
        ),
        tied=((0, 1),),
        schedule=SCHEDULES["amdp_2"](ScheduleShape(2, 4, num_updates=3)),
    )

    def make_batch(step: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(step)
        inputs, targets = torch.randint(11, (2, 4, 6), generator=generator)
        return {"inputs": inputs, "targets": targets}

    training = train_local(Session(plan, model, make_batch, steps=5), timeout_s=60)
    assert len(training.losses) == 5
    # Two runs, of 3 updates and of 2: within each, the mean time of an update.
    assert len(training.step_ns) == 5
    assert [len(set(training.step_ns[:3])), len(set(training.step_ns[3:]))] == [1, 1]
    assert training.timeline.schedule.updates.number in (2, 3)
