"""K-FAC in the bubbles of the demo: ``python -m benchmarks.kfac_in_bubbles [--steps N]``.

The demo's model trains on the source files of Python's standard library in two processes by GPipe,
whose bubbles are few and long: once with the demo's optimizer (AdamW) alone, and once with
gradients preconditioned by K-FAC, whose covariances and inverses are worked off in the bubbles
where PipeFisher's rule puts them, under the times that the first training has taken and that the
work takes in a few trial steps. Printed are both losses, the steps that K-FAC needs for the loss at
which the other ends, and both step times.

Losses are means over 5 steps. Ends with exit code 1 if K-FAC needs as many steps or more.
"""

import argparse
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import evener
from evener.cost.table import CostTable
from evener.executor.emulate import measured_costs
from evener.executor.kfac import KfacSideWork
from evener.executor.launch import Rank, run_workers
from evener.executor.session import Session, Training, train_local
from evener.executor.text_data import read_text
from evener.executor.train import StepResult, TrainOptions
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.modules.kfac import KfacOptions
from evener.planner.pipe_fisher import PRIORITIES, KfacCosts, kfac_name, pipe_fisher
from evener.planner.side_work import Filling
from evener.schedules import ScheduleShape, gpipe
from evener.sim.stats import bubbles
from evener.spec import load_toml

RECIPES = Path(__file__).parent.parent / "recipes"
# The head takes about as long as all blocks together.
PARTITION = ((0, 9), (9, 10))
LAYERS = range(1, 10)
MICROBATCH_SIZE = 2
OPTIONS = KfacOptions(damping=0.1, decay=0.5, largest=600)
TRIAL_STEPS, WINDOW = 6, 5


@dataclass(frozen=True)
class Demo:
    """The demo's model, job and text."""

    steps: int

    @cached_property
    def model(self) -> evener.ModelSpec:
        return load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)

    @cached_property
    def job(self) -> evener.JobSpec:
        return load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec)

    @cached_property
    def plan(self) -> Plan:
        num_microbatches = self.job.num_sequences // MICROBATCH_SIZE
        return Plan(
            model=self.model.name,
            model_fingerprint=self.model.fingerprint(),
            layer_names=tuple(layer.name for layer in self.model.layers),
            partition=PARTITION,
            devices=(("cpu:0",), ("cpu:1",)),
            microbatch_size=MICROBATCH_SIZE,
            sequence_length=self.job.sequence_length,
            job=self.job,
            schedule=gpipe(ScheduleShape(2, num_microbatches)),
        )

    @cached_property
    def text(self) -> Any:
        vocabulary_size = self.model.vocabulary_size
        assert vocabulary_size is not None
        return read_text(Path(sysconfig.get_path("stdlib")), vocabulary_size=vocabulary_size)

    def batch(self, step: int) -> dict[str, Any]:
        return self.text.batch(
            num_sequences=self.job.num_sequences,
            sequence_length=self.job.sequence_length,
            seed=self.job.seed,
            step=step,
        )

    def first_order(self) -> Training:
        return train_local(Session(self.plan, self.model, self.batch, self.steps))

    def with_kfac(self, filling: Filling, steps: int, **session: Any) -> Session:
        plan = self.plan.with_cycle(filling.schedules)
        kfac = KfacSideWork(plan, LAYERS, OPTIONS)
        options = TrainOptions(side_work=kfac.side_work)
        return Session(
            plan, self.model, self.batch, steps, options, on_start=kfac.attach, **session
        )

    def filling(self, costs: CostTable, layers: dict[int, KfacCosts]) -> Filling:
        return pipe_fisher(self.plan.schedule, costs, layers, partition=PARTITION)

    def kfac_costs(self) -> dict[int, KfacCosts]:
        """What each unit takes, measured in a training whose bubbles hold any number of them."""
        nothing = dict.fromkeys(LAYERS, KfacCosts(0, 0, 0, 0))
        filling = self.filling(CostTable.uniform(2, 2), nothing)
        timelines: list[Timeline] = []

        def keep(step: int, result: StepResult) -> None:
            assert result.timeline is not None
            timelines.append(result.timeline)

        def run(rank: Rank) -> list[Timeline]:
            self.with_kfac(filling, TRIAL_STEPS, on_step=keep).train(rank)
            return timelines

        # The first cycle also makes room.
        played = run_workers(run, 2, timeout_s=600)[0][len(filling.schedules) :]
        side_ns = measured_costs(played, CostTable.uniform(2, 2)).side_ns
        return {
            layer: KfacCosts(
                **{
                    f"{kind[:-1]}_{kind[-1].lower()}_ns": side_ns[kfac_name(kind, layer)]
                    for kind in PRIORITIES
                    if not kind.startswith("sync")
                }
            )
            for layer in LAYERS
        }


def smooth(losses: Sequence[float]) -> list[float]:
    """Per step, the mean over the last few."""
    return [fmean(losses[max(0, step + 1 - WINDOW) : step + 1]) for step in range(len(losses))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="of each training (default 60)")
    demo = Demo(parser.parse_args().steps)
    first = demo.first_order()
    costs = measured_costs([first.timeline], CostTable.uniform(2, 2))
    layers = demo.kfac_costs()
    filling = demo.filling(costs, layers)
    second = train_local(demo.with_kfac(filling, demo.steps))

    work_ns = sum(placed.unit.duration_ns for placed in filling.placed)
    idle_ns = sum(bubbles(first.timeline).idle_ns) * len(filling.schedules)
    print(
        f"{len(filling.placed)} units of K-FAC, {work_ns / 1e6:.1f} ms, in the bubbles of"
        f" {len(filling.schedules)} steps: {work_ns / idle_ns:.1%} of their idle time"
    )
    curves = [smooth(run.losses) for run in (first, second)]
    print(f"{'step':>4}  {'AdamW':>8}  {'+ K-FAC':>8}")
    for step in range(WINDOW - 1, demo.steps, WINDOW):
        print(f"{step + 1:4}  {curves[0][step]:8.4f}  {curves[1][step]:8.4f}")
    reached = next((s + 1 for s, loss in enumerate(curves[1]) if loss <= curves[0][-1]), None)
    print(
        f"loss {curves[0][-1]:.4f} of AdamW after {demo.steps} steps: K-FAC reaches it after"
        f" {'more' if reached is None else reached}"
    )
    alone_ms, with_ms = (median(run.step_ns) / 1e6 for run in (first, second))
    print(f"median step {alone_ms:.1f} ms alone, {with_ms:.1f} ms with K-FAC")
    return int(reached is None or reached >= demo.steps)


if __name__ == "__main__":
    sys.exit(main())
