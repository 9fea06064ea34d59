"""K-FAC in the bubbles of two processes against K-FAC in one, refreshed in the same order."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.errors import UsageError
from evener.executor.kfac import KfacSideWork
from evener.executor.launch import Rank, run_workers
from evener.executor.session import Session
from evener.executor.train import Trainer, TrainOptions
from evener.ir.action import Kind
from evener.ir.freezing import Freezing
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.modules.kfac import KfacOptions
from evener.planner.pipe_fisher import KfacCosts, kfac_name, pipe_fisher
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec.job import JobSpec
from evener.testing.worlds import unit_costs

pytestmark = pytest.mark.dist

LINEARS = (0, 2, 4)
PARTITION = ((0, 3), (3, 5))
MICROBATCHES, ROWS, STEPS, RATE = 3, 4, 8, 0.05
OPTIONS = KfacOptions(damping=0.1, decay=0.5)


def layers() -> list[nn.Module]:
    torch.manual_seed(1)
    found = [nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 7, bias=False), nn.Tanh(), nn.Linear(7, 3)]
    return [layer.double() for layer in found]


class SquareLoss:
    def count(self, microbatch: dict[str, Any]) -> int:
        return int(microbatch["inputs"].shape[0])

    def total(self, output: Tensor, microbatch: dict[str, Any]) -> Tensor:
        return (output - microbatch["targets"]).square().sum()


def batch(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(MICROBATCHES * ROWS, 6, dtype=torch.float64, generator=generator)
    return {"inputs": x, "targets": x[:, :3].sin()}


def recomputed(schedule: Schedule) -> Schedule:
    """The same with the forward of every other microbatch done again before its backward."""
    return replace(
        schedule,
        workers=tuple(
            tuple(
                each
                for action in actions
                for each in (
                    (action._replace(kind=Kind.R), action)
                    if action.kind is Kind.B and action.microbatch != 1
                    else (action,)
                )
            )
            for actions in schedule.workers
        ),
    )


def plan_of(name: str) -> Plan:
    """A pipeline whose bubbles do not hold a whole refresh in one step."""
    schedule = SCHEDULES[name.removesuffix(" with R")](ScheduleShape(2, MICROBATCHES))
    if name.endswith(" with R"):
        schedule = recomputed(schedule)
    costs = unit_costs(2, 2)
    costs = replace(costs, time_ns=costs.time_ns * 1000)
    units = {0: KfacCosts(150, 150, 300, 300), 2: KfacCosts(90, 90, 200, 210)}
    units[4] = KfacCosts(200, 100, 400, 150)
    filling = pipe_fisher(schedule, costs, units, partition=PARTITION)
    assert len(filling.schedules) in (2, 3, 4)
    return with_schedule(schedule).with_cycle(filling.schedules)


def with_schedule(schedule: Schedule) -> Plan:
    return Plan(
        model="tiny",
        model_fingerprint="any",
        layer_names=tuple("abcde"),
        partition=PARTITION,
        devices=tuple((f"cpu:{worker}",) for worker in range(schedule.num_workers)),
        microbatch_size=ROWS,
        sequence_length=1,
        job=JobSpec.model_validate(
            {
                "global_batch_sequences": MICROBATCHES * ROWS,
                "sequence_length": 1,
                "optimizer": {"kind": "sgd", "learning_rate": RATE, "momentum": 0.9},
            }
        ),
        schedule=schedule,
    )


def trained(plan: Plan) -> dict[str, Tensor]:
    """The parameters after training in two processes."""

    def work(rank: Rank) -> dict[str, Tensor]:
        kfac, trainers = KfacSideWork(plan, LINEARS, OPTIONS), []

        def start(trainer: Trainer) -> None:
            kfac.attach(trainer)
            trainers.append(trainer)

        options = TrainOptions(loss=SquareLoss(), side_work=kfac.side_work)
        Session(plan, layers(), batch, STEPS, options, on_start=start).train(rank)
        return {name: p.detach() for name, p in trainers[0].model.parameters.items()}

    first, second = run_workers(work, 2, timeout_s=60)
    return {**first, **second}


@dataclass
class Reference:
    """K-FAC of one process: plain formulas, one Linear."""

    linear: nn.Linear
    saved: dict[str, dict[int, Tensor]] = field(default_factory=lambda: {"A": {}, "B": {}})
    total: dict[str, Tensor] = field(default_factory=dict)
    mean: dict[str, Tensor] = field(default_factory=dict)
    inverse: dict[str, Tensor] = field(default_factory=dict)

    def covariance(self, side: str, microbatch: int) -> None:
        rows = self.saved[side].pop(microbatch)
        self.total[side] = self.total.get(side, 0) + rows.t() @ rows

    def invert(self, side: str) -> None:
        num_rows = MICROBATCHES * ROWS
        new = self.total.pop(side) * (num_rows if side == "B" else 1 / num_rows)
        self.mean[side] = 0.5 * self.mean[side] + 0.5 * new if side in self.mean else new
        size = len(new)
        damping = 0.1 * self.mean[side].trace() / size * torch.eye(size, dtype=new.dtype)
        self.inverse[side] = torch.linalg.inv(self.mean[side] + damping)

    def precondition(self) -> None:
        if len(self.inverse) < 2:
            return
        bias = self.linear.bias
        gradient = self.linear.weight.grad
        if bias is not None:
            gradient = torch.cat((gradient, bias.grad[:, None]), 1)
        new = self.inverse["B"] @ gradient @ self.inverse["A"]
        new *= gradient.norm() / new.norm()
        self.linear.weight.grad = new[:, : self.linear.in_features].clone()
        if bias is not None:
            bias.grad = new[:, -1].clone()


def reference(plan: Plan) -> tuple[dict[str, Tensor], int]:
    """The same training in one process, and how many gradients were preconditioned."""
    model = layers()
    kfac = {layer: Reference(model[layer]) for layer in LINEARS}
    optimizer = torch.optim.SGD(nn.ModuleList(model).parameters(), lr=RATE, momentum=0.9)
    names = {kfac_name(f"{w}{s}", n): (w, s, n) for w in ("cov", "inv") for s in "AB" for n in kfac}
    num_preconditioned = 0
    for step in range(STEPS):
        data = batch(step)
        optimizer.zero_grad()
        for microbatch in range(MICROBATCHES):
            rows = slice(microbatch * ROWS, (microbatch + 1) * ROWS)
            value, outputs = data["inputs"][rows], {}
            for number, layer in enumerate(model):
                inputs, value = value, layer(value)
                if number in kfac:
                    value.retain_grad()
                    outputs[number] = inputs.detach(), value
            loss = (value - data["targets"][rows]).square().sum() / (MICROBATCHES * ROWS)
            loss.backward()
            for number, (inputs, output) in outputs.items():
                if step % len(plan.cycle) == 0:
                    ones = torch.ones(ROWS, int(model[number].bias is not None))
                    kfac[number].saved["A"][microbatch] = torch.cat((inputs, ones.double()), 1)
                    kfac[number].saved["B"][microbatch] = output.grad.detach()
        for _, action in plan.cycle[step % len(plan.cycle)].actions():
            if action.kind is Kind.X:
                work, side, number = names[str(action.name)]
                if work == "cov":
                    kfac[number].covariance(side, action.microbatch)
                else:
                    kfac[number].invert(side)
        for each in kfac.values():
            num_preconditioned += len(each.inverse) == 2
            each.precondition()
        optimizer.step()
    parameters = nn.ModuleList(model).named_parameters()
    return {name: parameter.detach() for name, parameter in parameters}, num_preconditioned


@pytest.mark.parametrize("name", ["one_f_one_b", "gpipe with R", "zb_h1"])
def test_two_processes_do_what_one_does(name: str) -> None:
    plan = plan_of(name)
    expected, num_preconditioned = reference(plan)
    # Of 3 Linears in 8 steps, all but those before the first inverses.
    assert num_preconditioned >= 3 * (STEPS - len(plan.cycle) + 1)
    found = trained(plan)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert (found[key] - value).abs().max() <= 1e-10 * value.abs().max(), key


def test_plans_that_it_does_not_fit_are_refused() -> None:
    shape = ScheduleShape(2, MICROBATCHES)
    plan = with_schedule(SCHEDULES["chimera"](shape))
    with pytest.raises(UsageError) as caught:
        KfacSideWork(plan, [0])
    assert str(caught.value) == (
        "K-FAC cannot run in the bubbles of this plan\n"
        "  stage 0 is on workers 0, 1, which would have to sum their covariances; plan with one "
        "worker per stage and one replica"
    )
    late = SCHEDULES["pipedream_2bw"](replace(shape, num_updates=2))
    frozen = with_schedule(SCHEDULES["gpipe"](shape)).model_copy(
        update={"schedule": late, "freezing": Freezing.uniform(late, 0)}
    )
    with pytest.raises(UsageError) as caught:
        KfacSideWork(frozen, [0])
    assert caught.value.violations == (
        "it freezes, so some gradients would have no covariance; plan a job without freeze",
        "it makes 2 updates between two flushes, but a refresh belongs to one; plan a schedule "
        "that flushes after each",
    )
