"""The demo under our plan, under uniform 1F1B, and under all of torch's schedules.

``python -m benchmarks.demo_against_torch``: the recipe of ``make demo`` on two processes.  In one
run its layers are measured; the plans of ``evener plan`` by its planners uniform, sweep and joint,
and torch.distributed.pipelining's schedules are built in the same two processes and take turns,
some steps each. The first of them is not counted: it finds the caches full of the others' tensors,
as it does not in training.  Torch's schedules are given uniform stages, and also those of which the
longest is shortest, at the microbatch sizes of uniform 1F1B and of our plan.  All train with the
job's optimizer and clipping on the same batches of text, from the same parameters.

Printed are medians of the slower rank's time, and of our plans also how far they are from their
predictions.  ``ours`` is the plan of the three that is predicted to be fastest.  Ends with exit
code 1 if it is less than 1.25 times as fast as uniform 1F1B, slower than the best of torch, more
than 10 % from its prediction, or if losses or gradients are not those of one process.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributed import pipelining

import evener
from benchmarks.demo import RECIPES, Demo
from benchmarks.under_torch import TorchJob, UnderTorch
from evener.executor.launch import Rank, run_workers
from evener.executor.shared_memory import connect
from evener.executor.torch_transport import TorchTransport
from evener.executor.train import Trainer
from evener.executor.verify import verify
from evener.ir.plan import Plan
from evener.modules.optimizer import optimizer_factory
from evener.planner.partition.contiguous import Partition, balanced_partition, uniform_partition
from evener.planner.result import PlanResult
from evener.planner.stop import MaxRuntime
from evener.spec import load_toml

MICROBATCH_SIZES = (1, 2, 4)
PLANNERS = ("uniform", "sweep", "joint")
TORCH_STAGES = {
    pipelining.ScheduleGPipe: 2,
    pipelining.Schedule1F1B: 2,
    pipelining.ScheduleInterleaved1F1B: 4,
    pipelining.ScheduleLoopedBFS: 4,
    pipelining.ScheduleInterleavedZeroBubble: 4,
    pipelining.ScheduleZBVZeroBubble: 4,
    pipelining.ScheduleDualPipeV: 4,
}
"""Torch's schedules, and the stages that they have on two ranks."""

LOSS_TOLERANCE = 1e-4
"""Relative; all sums are in float32 and in another order in each."""

LEAST_SPEED_UP, MOST_DIFFERENCE = 1.25, 0.10


class Step(NamedTuple):
    """wall_ns: of the slower rank. loss: of the whole batch."""

    wall_ns: int
    loss: float


@dataclass(frozen=True)
class World:
    """What is trained."""

    model: evener.ModelSpec
    cluster: evener.ClusterSpec
    job: evener.JobSpec

    @classmethod
    def demo(cls) -> "World":
        demo = Demo()
        cluster = load_toml(RECIPES / "clusters/local-2.toml", evener.ClusterSpec)
        return cls(demo.model, cluster, demo.job)

    def batches(self, number: int) -> list[dict[str, Tensor]]:
        return list(map(Demo().batch, range(number)))

    def torch_job(self, kind: type, partition: Partition, microbatch_size: int) -> TorchJob:
        return TorchJob(
            kind,
            self.model,
            partition,
            len(self.cluster.devices),
            self.job.num_sequences // microbatch_size,
            optimizer_factory(self.job.optimizer),
            self.job.clip_norm,
        )


class UnderEvener:
    """A plan on one rank."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.loss = torch.zeros(())

    def step(self, batch: dict[str, Tensor]) -> None:
        self.loss = torch.tensor(self._trainer.step(batch).loss)


def torch_jobs(
    world: World, profile: evener.Profile, microbatch_sizes: Sequence[int]
) -> dict[str, TorchJob]:
    """By name: schedule, stages, microbatch size."""
    jobs = {}
    for size in microbatch_sizes:
        for kind, num_stages in TORCH_STAGES.items():
            name = kind.__name__.removeprefix("Schedule")
            uniform = uniform_partition(len(world.model.layers), num_stages)
            even = even_partition(world, profile, size, num_stages)
            for stages, partition in {"uniform": uniform, "even": even}.items():
                jobs[f"torch {name}, {stages}, {size}"] = world.torch_job(kind, partition, size)
    return jobs


def even_partition(
    world: World, profile: evener.Profile, microbatch_size: int, num_stages: int
) -> Partition:
    """The one whose longest stage is shortest, by the same profile."""
    costs = {
        cost.layer: cost.forward_ns + cost.backward_ns
        for cost in profile.layers
        if cost.microbatch_size == microbatch_size
    }
    row = [costs[layer.config] for layer in world.model.layers]
    partition = balanced_partition(np.array([row] * num_stages))
    assert partition is not None
    return partition


def run(
    world: World,
    plans: Mapping[str, Plan],
    jobs: Mapping[str, TorchJob],
    *,
    rounds: int,
    steps: int,
) -> dict[str, list[list[Step]]]:
    """All of them in turns, so many steps at once; by name the steps of each round."""

    def work(rank: Rank) -> dict[str, list[list[Step]]]:
        torch.set_num_threads(1)
        transport = connect(rank, torch.device("cpu"), [(0, 1), (1, 0)], [(0, 1)])
        sides: dict[str, UnderEvener | UnderTorch] = {
            name: UnderEvener(Trainer(plan, world.model, transport)) for name, plan in plans.items()
        }
        sides |= {name: UnderTorch(job, rank.index) for name, job in jobs.items()}
        taken: dict[str, list[list[Step]]] = {name: [] for name in sides}
        batches = world.batches(rounds * steps)
        for number in range(rounds):
            own = batches[number * steps : (number + 1) * steps]
            for name in sides if number % 2 else reversed(sides):
                taken[name].append([_timed(sides[name], batch, transport) for batch in own])
        transport.close()
        return taken

    return run_workers(work, len(world.cluster.devices), timeout_s=900)[0]


def _timed(
    side: UnderEvener | UnderTorch, batch: dict[str, Tensor], transport: TorchTransport
) -> Step:
    """One step; all ranks start together."""
    transport.barrier()
    start_ns = time.perf_counter_ns()
    side.step(batch)
    own_ns = time.perf_counter_ns() - start_ns
    return Step(max(transport.gather(own_ns)), float(side.loss))


def counted(rounds: Sequence[Sequence[Step]]) -> list[Step]:
    """All steps but the first of each round."""
    return [step for own in rounds for step in own[1:]]


def plan_all(world: World, profile: evener.Profile, seconds: float) -> dict[str, PlanResult]:
    """By planner. seconds: the most that one may take."""
    return {
        name: evener.find_plan(
            world.model,
            world.cluster,
            world.job,
            profile,
            planner=name,
            stop=MaxRuntime(seconds),
        )
        for name in PLANNERS
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="of each, in each round")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the joint search")
    options = parser.parse_args()
    world = World.demo()
    profile = evener.measure(
        world.model, world.cluster, world.job, microbatch_sizes=MICROBATCH_SIZES
    )
    if profile.unsteady:
        print(profile.unsteady)
    found = plan_all(world, profile, options.seconds)
    ours = min(PLANNERS, key=lambda name: found[name].objective_ns)
    sizes = sorted({found[name].best.microbatch_size for name in ("uniform", ours)})
    plans = {of_ours(name): result.best for name, result in found.items()}
    jobs = torch_jobs(world, profile, sizes)
    taken = run(world, plans, jobs, rounds=options.rounds, steps=options.steps)
    steps = {name: counted(rounds) for name, rounds in taken.items()}
    medians_ns = print_table(found, steps)
    return verdict(found[ours], of_ours(ours), steps, medians_ns)


def of_ours(planner: str) -> str:
    return f"evener {planner}"


def print_table(
    found: Mapping[str, PlanResult], steps: Mapping[str, Sequence[Step]]
) -> dict[str, float]:
    """The fastest first. Returns the medians."""
    medians_ns = {name: median(step.wall_ns for step in own) for name, own in steps.items()}
    uniform_ns = medians_ns[of_ours("uniform")]
    predicted_ns = {of_ours(name): result.objective_ns for name, result in found.items()}
    print(f"{'':46} measured ms  uniform/this  predicted ms  measured-predicted")
    for name, median_ns in sorted(medians_ns.items(), key=lambda item: item[1]):
        line = f"{name:46}{median_ns / 1e6:12.1f}{uniform_ns / median_ns:13.2f}x"
        if name in predicted_ns:
            line += f"{predicted_ns[name] / 1e6:14.1f}{median_ns / predicted_ns[name] - 1:+20.1%}"
        print(line)
    return medians_ns


def verdict(
    ours: PlanResult,
    name: str,
    steps: Mapping[str, Sequence[Step]],
    medians_ns: Mapping[str, float],
) -> int:
    """The four claims; 0 if all hold."""
    plan = ours.best
    layers = "+".join(str(last - first) for first, last in plan.partition)
    print(f"ours: {name}: {plan.schedule.name}, layers {layers}, microbatch {plan.microbatch_size}")
    of_torch = {each: ns for each, ns in medians_ns.items() if each.startswith("torch")}
    best = min(of_torch, key=lambda each: of_torch[each])
    speed_up = medians_ns[of_ours("uniform")] / medians_ns[name]
    over_torch = of_torch[best] / medians_ns[name]
    differs = medians_ns[name] / ours.objective_ns - 1
    apart = furthest_apart(steps)
    parity = verify(plan)
    print(
        f"{speed_up:.2f}x over uniform 1F1B, "
        f"{over_torch:.2f}x over the best of torch ({best}); {differs:+.1%} from the prediction\n"
        f"losses of all {len(steps)} agree to {apart:.1e}; gradients of one process: "
        f"{'equal' if parity.holds else 'NOT equal'} to {parity.worst:.1e}"
    )
    holds = (
        speed_up >= LEAST_SPEED_UP,
        over_torch > 1,
        abs(differs) <= MOST_DIFFERENCE,
        apart <= LOSS_TOLERANCE and parity.holds,
    )
    return 0 if all(holds) else 1


def furthest_apart(steps: Mapping[str, Sequence[Step]]) -> float:
    """The largest relative difference between the losses of one step."""
    losses = np.array([[step.loss for step in own] for own in steps.values()])
    return float((np.ptp(losses, axis=0) / losses.min(axis=0)).max())


if __name__ == "__main__":
    sys.exit(main())
