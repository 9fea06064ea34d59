"""A training whose plan changes on the way: nothing is lost, and nothing is done twice."""

import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.executor.failure import Progress
from evener.executor.launch import Rank, run_workers
from evener.executor.parity_grid import Holders, spread
from evener.executor.seat import Seat
from evener.executor.session import Session, train_local
from evener.executor.train import TrainOptions
from evener.executor.verify import tiny_model
from evener.ir.plan import Plan, tied_stages
from evener.planner.find_plan import find_plan
from evener.planner.problem import Problem
from evener.planner.replan import replanner
from evener.planner.replan.options import Replan
from evener.spec import ClusterSpec
from evener.spec.job import JobSpec
from evener.testing.emulated_machines import Disturbance, EmulatedMachines

pytestmark = pytest.mark.dist

LENGTH, MS = 6, 1_000_000
MODEL = tiny_model(6, tied=True, dropout=0.1)
JOB = JobSpec.model_validate(
    {
        "global_batch_sequences": 6,
        "sequence_length": LENGTH,
        "microbatch_size": 1,
        "clip_norm": 0.5,
        "dtypes": dict.fromkeys(("parameters", "gradients", "optimizer", "activations"), "float64"),
    }
)


def plan_of(
    holders: Holders, cuts: tuple[int, ...], *, devices: tuple[int, ...], num_microbatches: int = 6
) -> Plan:
    partition = tuple(zip((0, *cuts), (*cuts, 6), strict=True))
    return Plan(
        model=MODEL.name,
        model_fingerprint=MODEL.fingerprint(),
        layer_names=tuple(layer.name for layer in MODEL.layers),
        partition=partition,
        devices=tuple((f"local:{index}",) for index in devices),
        replicas=6 // num_microbatches,
        microbatch_size=1,
        sequence_length=LENGTH,
        job=JOB,
        tied=tied_stages(MODEL, partition),
        schedule=spread(holders, num_microbatches),
    )


def batch(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs, targets = torch.randint(11, (2, 6, LENGTH), generator=generator)
    return {"inputs": inputs, "targets": targets}


# A chain; the same in another direction, cut elsewhere, with a stage on two workers; two stages on
# each of two workers and none of them where it was; every layer on everybody.
PLANS = (
    plan_of(((0,), (1,), (2,)), (2, 4), devices=(0, 1, 2)),
    plan_of(((0,), (1, 2)), (3,), devices=(2, 0, 1)),
    plan_of(((0,), (1,), (2,), (1,), (0,)), (1, 2, 3, 5), devices=(1, 2, 0)),
    plan_of(((0,),), (), devices=(0, 2, 1), num_microbatches=2),
)


def train_under_all(rank: Rank) -> tuple[list[float], bool]:
    """Losses of two steps under each plan, and whether the models of earlier plans are gone."""
    seat = Seat(rank, PLANS[0], MODEL, TrainOptions(), Progress(rank.index))
    seat.trainer.set_learning_rate(0.01)
    losses = [seat.trainer.step(batch(step)).loss for step in range(2)]
    gone = []
    for number, plan in enumerate(PLANS[1:], start=1):
        gone.append(weakref.ref(next(iter(seat.trainer.model.parameters.values()))))
        seat.switch(plan)
        losses += [seat.trainer.step(batch(step)).loss for step in (2 * number, 2 * number + 1)]
    seat.close()
    return losses, all(reference() is None for reference in gone)


@pytest.mark.timeout(120)
def test_losses_are_those_of_a_run_under_one_plan() -> None:
    def first(trainer: Any) -> None:
        trainer.set_learning_rate(0.01)

    steps = 2 * len(PLANS)
    alone = train_local(Session(PLANS[0], MODEL, batch, steps, on_start=first), timeout_s=60)
    for losses, are_gone in run_workers(train_under_all, 3, timeout_s=60):
        assert losses == pytest.approx(alone.losses, rel=1e-12)
        assert are_gone


CLUSTER = ClusterSpec.local(2, memory_bytes=600_000_000)
UNITS = {"embedding": 1, "attention": 3, "mlp": 2, "plain": 1, "head": 1}


def profile() -> Profile:
    """Four of the six layers fit on a worker: 100 MB each with gradients and Adam."""
    sizes: dict[str, Any] = dict.fromkeys(
        ("activation_bytes", "weight_gradient_bytes", "input_bytes", "output_bytes"), 1000
    )
    layers = (
        LayerCost(
            layer=name,
            microbatch_size=1,
            sequence_length=LENGTH,
            forward_ns=units * 4 * MS,
            backward_ns=units * 8 * MS,
            input_grad_ns=units * 4 * MS,
            weight_grad_ns=units * 4 * MS,
            recompute_ns=units * 4 * MS,
            parameter_bytes=30_000_000,
            **sizes,
        )
        for name, units in UNITS.items()
    )
    return Profile(
        model=MODEL.name,
        fingerprint=MODEL.fingerprint(),
        device_type="cpu",
        host="described",
        dtype="float64",
        layers=tuple(layers),
        links=(LinkCost(from_device="cpu", to_device="cpu", latency_ns=0, bytes_per_s=0),),
    )


class AtOnce:
    """In place of a search beside the run, so that a busy machine does not decide the step."""

    def __init__(self, problem: Problem, planner: str, *, time_limit_s: float) -> None:
        del time_limit_s
        self.answer = find_plan(
            problem.model, problem.cluster, problem.job, problem.profile, planner=planner
        )

    def close(self) -> None:
        """It has ended."""


@pytest.mark.timeout(120)
def test_a_worker_that_becomes_slow_gets_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replanner, "Search", AtOnce)
    job = JOB.model_copy(update={"memory_cap_bytes": 600_000_000})
    plan = find_plan(MODEL, CLUSTER, job, profile()).best
    calm = train_local(Session(plan, MODEL, batch, 24), timeout_s=60)
    machines = EmulatedMachines(MODEL, CLUSTER, profile(), [Disturbance(6, slow={"local:1": 3.0})])
    replan = Replan(CLUSTER, profile(), window=2, threshold=1.6)
    run = train_local(
        Session(plan, MODEL, batch, 24, on_start=machines.install, replan=replan), timeout_s=90
    )
    assert run.losses == pytest.approx(calm.losses, rel=1e-12)
    switch = run.switches[0]
    assert "local:1 takes" in switch.reason
    assert 8 <= switch.step <= 18
    assert layers_of(switch.plan, "local:1") < layers_of(plan, "local:1")
    slow, after = run.step_ns[switch.step - 1], run.step_ns[-3:]
    assert min(after) < slow
    with pytest.raises(ValueError, match="threshold is 1; give more than 1"):
        replace(replan, threshold=1.0)


def layers_of(plan: Plan, device: str) -> int:
    worker = plan.devices.index((device,))
    stages = plan.schedule.stages_of_worker[worker]
    return sum(plan.partition[stage][1] - plan.partition[stage][0] for stage in stages)
