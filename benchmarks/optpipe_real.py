"""A plan for half of the memory of 1F1B, run for real: ``python -m benchmarks.optpipe_real``.

Measures the demo model on this machine, plans it on two workers under half of what the fuller
worker of 1F1B holds for its microbatches (what it always holds comes on top), and

- trains a small model under the plan in two processes and in one: the largest difference of losses,
  gradients and parameters in float64;
- plays the plan in two processes under the virtual clock: whether every start and end is as
  predicted;
- trains the demo model for a step in two processes: the most bytes of saved activations that were
  alive on each worker, by weak references, beside what the plan allows.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

import evener
from evener.executor.emulate import emulate
from evener.executor.launch import Rank, run_workers
from evener.executor.live_bytes import LiveBytes
from evener.executor.shared_memory import connect
from evener.executor.train import Trainer, trainer_connections
from evener.executor.verify import verify
from evener.ir.action import Kind
from evener.ir.plan import Plan
from evener.planner.optpipe.plan_optpipe import OptPipePlanner
from evener.planner.plan_costs import costs_of_plan
from evener.planner.problem import Problem
from evener.planner.stop import NeverStop
from evener.sim import simulate
from evener.spec import load_toml

RECIPES = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True)
class Step:
    """One step in every process."""

    plan: Plan
    model: evener.ModelSpec

    def run(self, rank: Rank) -> int:
        """The most bytes that were alive on this worker."""
        transport = connect(rank, torch.device("cpu"), *trainer_connections(self.plan))
        trainer = Trainer(self.plan, self.model, transport)
        live = LiveBytes(trainer.engine)
        shape = (self.plan.job.num_sequences, self.plan.sequence_length + 1)
        generator = torch.Generator().manual_seed(0)
        tokens_BL = torch.randint(self.model.vocabulary_size or 0, shape, generator=generator)
        trainer.step({"inputs": tokens_BL[:, :-1], "targets": tokens_BL[:, 1:]})
        transport.close()
        return live.peak_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=5_000_000, help="effort of the search")
    parser.add_argument("--profile", type=Path, help="measured before; written if it is not there")
    options = parser.parse_args()
    model = load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)
    cluster = load_toml(RECIPES / "clusters/local-2.toml", evener.ClusterSpec)
    wanted = {
        "microbatch_size": 1,
        "memory_cap_bytes": None,
        "offload": True,
        "recompute": "auto",
    }
    job = load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec).model_copy(update=wanted)
    if options.profile is not None and options.profile.exists():
        profile = evener.Profile.load(options.profile)
    else:
        profile = evener.measure(model, cluster, job, microbatch_sizes=(1,))
        if options.profile is not None:
            profile.save(options.profile)

    plain = evener.find_plan(model, cluster, job, profile, planner="uniform").best
    static = costs_of_plan(plain, profile, cluster).memory.static_bytes
    assert plain.predicted is not None
    held = [peak - own for peak, own in zip(plain.predicted.peak_bytes, static, strict=True)]
    cap_bytes = max(static) + max(held) // 2
    capped = job.model_copy(update={"memory_cap_bytes": cap_bytes})
    planner = OptPipePlanner(options.actions)
    found = planner(
        Problem(model, cluster, capped, profile),
        stop=NeverStop(),
        seed=0,
        progress=lambda *_: None,
    )
    plan, costs = found.best, costs_of_plan(found.best, profile, cluster)
    assert plan.predicted is not None
    kinds = [action.kind for _, action in plan.schedule.actions()]
    print(f"1F1B: {plain.predicted.step_ns / 1e6:.2f} ms, peaks {plain.predicted.peak_bytes} bytes")
    print(
        f"cap {cap_bytes}: {found.objective_ns / 1e6:.2f} ms, peaks {plan.predicted.peak_bytes}, "
        f"{kinds.count(Kind.OFFLOAD)} offloaded, {kinds.count(Kind.R)} recomputed, "
        f"{kinds.count(Kind.I)} split of {kinds.count(Kind.F)} cells"
    )
    print(f"parity: {verify(plan).worst:.1e}")
    lowered = plan.lowered()
    (played,) = emulate(lowered, costs)
    predicted = simulate(lowered, costs)
    same = played.start_ns == predicted.start_ns and played.end_ns == predicted.end_ns
    print(f"virtual clock: {'every start and end' if same else 'NOT'} as predicted")
    for name, each in (("1F1B", plain), ("ours", plan)):
        of_plan = costs_of_plan(each, profile, cluster).memory.static_bytes
        for worker, alive in enumerate(run_workers(Step(each, model).run, 2, timeout_s=300.0)):
            print(
                f"{name}, worker {worker}: {alive} bytes of saved activations were alive, "
                f"{cap_bytes - of_plan[worker]} allowed under the cap"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
