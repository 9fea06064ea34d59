"""Side tasks in the bubbles of a pipeline: ``python -m benchmarks.side_tasks [--steps N]``.

A real pipeline of 4 processes trains by 1F1B with 8 microbatches. Its layers sleep for 50 ms
forward and 100 ms backward, so they stand for devices that do not compute on this machine. First it
trains alone, which tells how long bubbles last; then with four side tasks, one per worker:
PageRank, training of a small network, resizing of images, and matrix factorisation by SGD. Both are
repeated in turn. Printed are the idle time of the pipeline, how much of it the side tasks worked,
and by how much the median step got longer.

Ends with exit code 1 if they harvest less than half, or cost the pipeline 2 % or more.
"""

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from evener.executor.session import Session, Training, train_local
from evener.executor.side_tasks import SideTask, State
from evener.executor.train import TrainOptions
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.schedules import ScheduleShape, one_f_one_b
from evener.sim.stats import bubbles
from evener.spec.job import JobSpec

WORKERS, MICROBATCHES = 4, 8
FORWARD_S, BACKWARD_S = 0.050, 0.100
LEAST_HARVEST, MOST_OVERHEAD = 0.5, 0.02
ROUNDS = 2


class _Sleep(torch.autograd.Function):
    """The identity, slowly."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        time.sleep(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx, dy: Tensor) -> Tensor:
        time.sleep(BACKWARD_S)
        return dy


class SleepingLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return _Sleep.apply(x * self.scale)


class SquareLoss:
    def count(self, microbatch: dict[str, Tensor]) -> int:
        return int(microbatch["inputs"].shape[0])

    def total(self, output: Tensor, microbatch: dict[str, Tensor]) -> Tensor:
        return output.square().sum()


def plan() -> Plan:
    return Plan(
        model="sleeping",
        model_fingerprint="none",
        layer_names=tuple(f"layer_{index}" for index in range(WORKERS)),
        partition=tuple((index, index + 1) for index in range(WORKERS)),
        devices=tuple((f"cpu:{worker}",) for worker in range(WORKERS)),
        microbatch_size=1,
        sequence_length=1,
        job=JobSpec(global_batch_sequences=MICROBATCHES, sequence_length=1),
        schedule=one_f_one_b(ScheduleShape(WORKERS, MICROBATCHES)),
    )


class PageRank:
    """Power iteration on a random graph of 5,000 nodes and 50,000 links."""

    def create(self) -> None:
        self.targets, self.sources = torch.randint(5_000, (2, 50_000))
        self.share = 0.85 / torch.bincount(self.sources, minlength=5_000).clamp(min=1)
        self.rank = torch.full((5_000,), 1 / 5_000)

    def step(self) -> bool:
        flow = (self.rank * self.share)[self.sources]
        self.rank = torch.full((5_000,), 0.15 / 5_000).index_add_(0, self.targets, flow)
        return True


class SmallNetwork:
    """SGD on 32 random samples at a time."""

    def create(self) -> None:
        self.model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> bool:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(
            self.model(torch.randn(32, 256)), torch.arange(32) % 10
        ).backward()
        self.optimizer.step()
        return True


class Resize:
    """One picture at a time, from 256 to 112 pixels."""

    def create(self) -> None:
        self.picture = torch.rand(1, 3, 256, 256)

    def step(self) -> bool:
        nn.functional.interpolate(self.picture, size=112, mode="bilinear", antialias=True)
        return True


class Factorisation:
    """A 4096 x 4096 table of ratings as a product of two of width 32, 2048 ratings at a time."""

    def create(self) -> None:
        self.rows, self.columns = torch.randn(2, 4096, 32) / 6

    def step(self) -> bool:
        i, j = torch.randint(4096, (2, 2048))
        error = ((self.rows[i] * self.columns[j]).sum(1) - torch.rand(2048)).unsqueeze(1)
        step_rows, step_columns = error * self.columns[j], error * self.rows[i]
        self.rows.index_add_(0, i, step_rows, alpha=-0.05)
        self.columns.index_add_(0, j, step_columns, alpha=-0.05)
        return True


TASKS: tuple[Callable[[], "PageRank | SmallNetwork | Resize | Factorisation"], ...] = (
    PageRank,
    SmallNetwork,
    Resize,
    Factorisation,
)


def side_tasks() -> dict[int, list[SideTask]]:
    found = {}
    for worker, make in enumerate(TASKS):
        work = make()
        found[worker] = [SideTask(make.__name__, work.step, create=work.create)]
    return found


def train(steps: int, expected: Timeline | None) -> Training:
    """expected: how long bubbles last; without it there are no side tasks."""
    options = TrainOptions(
        loss=SquareLoss(),
        side_tasks={} if expected is None else side_tasks(),
        expected=expected,
    )
    batch = {"inputs": torch.ones(MICROBATCHES, 8)}
    layers = [SleepingLayer() for _ in range(WORKERS)]
    return train_local(Session(plan(), layers, lambda step: batch, steps, options))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="of each training (default 8)")
    steps = parser.parse_args().steps
    alone_ns: list[int] = []
    with_ns: list[int] = []
    harvested_ns = num_steps = 0
    expected: Timeline | None = None
    print(f"{'worker':>6}  {'side task':16} {'steps':>6} {'worked':>8} {'late':>8}")
    for _ in range(ROUNDS):
        alone = train(steps, None)
        alone_ns += alone.step_ns[1:]
        expected = expected or alone.timeline
        both = train(steps, expected)
        with_ns += both.step_ns[1:]
        num_steps += steps
        for report in both.side_tasks:
            assert report.state is State.STOPPED
            assert report.reason is None, report.reason
            harvested_ns += report.busy_ns - report.late_ns
            print(
                f"{report.worker:6}  {report.name:16} {report.num_steps:6}"
                f" {report.busy_ns / 1e6:5.0f} ms {report.late_ns / 1e6:5.1f} ms"
            )
    assert expected is not None
    idle_ns = sum(bubbles(expected).idle_ns)
    harvest = harvested_ns / num_steps / idle_ns
    overhead = median(with_ns) / median(alone_ns) - 1
    alone_ms, with_ms = median(alone_ns) / 1e6, median(with_ns) / 1e6
    print(f"step alone {alone_ms:.1f} ms, with side tasks {with_ms:.1f} ms")
    print(f"idle per step, all workers: {idle_ns / 1e6:.0f} ms; harvested: {harvest:.1%} of it")
    print(f"overhead for the pipeline: {overhead:+.2%}")
    return int(harvest < LEAST_HARVEST or overhead >= MOST_OVERHEAD)


if __name__ == "__main__":
    sys.exit(main())
