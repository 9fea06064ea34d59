"""Side tasks in the bubbles of two processes: they work there, and the training does not notice."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.executor.session import Session, Training, train_local
from evener.executor.side_programs import side_program
from evener.executor.side_tasks import SideTask, State
from evener.executor.train import TrainOptions
from evener.ir.plan import Plan
from evener.schedules import ScheduleShape, one_f_one_b
from evener.sim.stats import bubbles
from evener.spec.job import JobSpec

pytestmark = pytest.mark.dist

STEPS = 4


class Sleep(torch.autograd.Function):
    """20 ms forward, 40 ms backward, in which others may compute."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        time.sleep(0.020)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        time.sleep(0.040)
        return dy


class Layer(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return Sleep.apply(super().forward(x))


class SquareLoss:
    def count(self, microbatch: dict[str, Any]) -> int:
        return int(microbatch["inputs"].shape[0])

    def total(self, output: Tensor, microbatch: dict[str, Any]) -> Tensor:
        return output.square().sum()


PLAN = Plan(
    model="sleeping",
    model_fingerprint="any",
    layer_names=("a", "b"),
    partition=((0, 1), (1, 2)),
    devices=(("cpu:0",), ("cpu:1",)),
    microbatch_size=1,
    sequence_length=1,
    job=JobSpec(global_batch_sequences=2, sequence_length=1, clip_norm=1.0),
    schedule=one_f_one_b(ScheduleShape(2, 2)),
)


def train(**options: Any) -> Training:
    torch.manual_seed(0)
    session = Session(
        PLAN,
        [Layer(4, 4), Layer(4, 4)],
        lambda step: {"inputs": torch.ones(2, 4)},
        STEPS,
        TrainOptions(loss=SquareLoss(), **options),
    )
    return train_local(session, timeout_s=60)


def rest() -> bool:
    """A step that takes 2 ms and no processor."""
    time.sleep(0.002)
    return True


def fail() -> bool:
    raise ArithmeticError("on purpose")


def test_tasks_work_while_their_worker_waits() -> None:
    alone = train()
    assert alone.side_tasks == ()
    tasks = {
        0: [SideTask("failing", fail), SideTask("resting", rest)],
        1: [side_program("one", ["sleep", "60"])],
    }
    both = train(side_tasks=tasks, expected=alone.timeline)
    assert both.losses == alone.losses
    failing, *resting = both.side_tasks
    assert (failing.worker, failing.state, failing.num_steps) == (0, State.STOPPED, 0)
    assert failing.reason == "step raised ArithmeticError: on purpose"
    assert [(report.worker, report.name) for report in resting] == [(0, "resting"), (1, "one")]
    # 1F1B, 2 microbatches: each worker waits for one F and one B, 60 ms, of every step; 85 % of
    # each of the one or two bubbles can be worked in.
    idle_ns = bubbles(alone.timeline).idle_ns
    for report in resting:
        assert report.reason is None
        harvested_ns = report.busy_ns - report.late_ns
        assert 0.4 * idle_ns[report.worker] < harvested_ns / STEPS < idle_ns[report.worker]
