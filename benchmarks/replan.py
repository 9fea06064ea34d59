"""Planning anew while training: a worker at half speed, a slow link, both from one step on.

    python -m benchmarks.replan [--planner sweep] [--time-limit 20] [--steps 64] [--unit 4] [--json]

Four processes train a small model of unequal layers in float64 with dropout.  Tensors, messages
and losses are real; actions and messages take the time that a profile says (sleeping workers), so
four workers need no four cores.  At step 20 one worker falls to half speed, or one link becomes
slow in both directions.  Compared are the step before, after the disturbance, after re-planning,
and that of a fresh plan that was made for the disturbed world by the same planner; and the losses
with those of a run that nothing disturbs and nobody plans anew.  What the run says of itself goes
to the standard error.

- unit: milliseconds of the shortest layer.  On a busy machine take more: what the layers really
  compute has to fit.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan
from statistics import median

import torch

import evener
from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.executor.session import Session, Training, train_local
from evener.ir.plan import Plan
from evener.planner.find_plan import find_plan
from evener.planner.replan.options import Replan
from evener.planner.stop import MaxRuntime
from evener.testing.emulated_machines import Disturbance, EmulatedMachines

NUM_WORKERS, NUM_SEQUENCES, LENGTH, AT = 4, 8, 4, 20
INNER = "wide narrow narrow wide narrow narrow narrow wide wide narrow narrow narrow narrow wide"
# With gradients and Adam a layer takes 40 MB as described: half of the model fits on no worker.
CLUSTER = evener.ClusterSpec.local(NUM_WORKERS, memory_bytes=300_000_000)
JOB = evener.JobSpec.model_validate(
    {
        "global_batch_sequences": NUM_SEQUENCES,
        "sequence_length": LENGTH,
        "microbatch_size": 1,
        "clip_norm": 1.0,
        "dtypes": dict.fromkeys(("parameters", "gradients", "optimizer", "activations"), "float64"),
    }
)
# In units: forward, gradient of the inputs, gradient of the weights.
UNITS = {"embedding": (1, 0, 1), "wide": (3, 4, 2), "narrow": (1, 1, 1), "head": (4, 4, 4)}
WARM_UP = 3


def _model() -> evener.ModelSpec:
    """Layers that compute little, as most of the time is slept."""
    inner = {
        name: {"kind": "mlp", "intermediate_size": size, "gated": False, "dropout": 0.1}
        for name, size in (("wide", 16), ("narrow", 8))
    }
    return evener.ModelSpec.model_validate(
        {
            "name": "unequal",
            "hidden_size": 8,
            "vocabulary_size": 11,
            "tied_embeddings": True,
            "pattern": f"embedding {INNER} head",
            "layer": {"embedding": {"kind": "embedding"}, **inner, "head": {"kind": "head"}},
        }
    )


MODEL = _model()


@dataclass(frozen=True)
class Row:
    """Medians of a step in nanoseconds; difference: the worst of a loss, of the undisturbed run."""

    disturbance: str
    before_ns: float
    disturbed_ns: float
    replanned_ns: float
    fresh_ns: float
    switches: tuple[str, ...]
    num_steps: int
    difference: float

    @property
    def ratio(self) -> float:
        return self.replanned_ns / self.fresh_ns

    def __str__(self) -> str:
        times = (self.before_ns, self.disturbed_ns, self.replanned_ns, self.fresh_ns)
        return (
            f"{self.disturbance:12}"
            + "".join(f"{time_ns / 1e6:9.1f} ms" for time_ns in times)
            + f"{self.ratio:8.3f}{self.disturbed_ns / self.replanned_ns:7.2f}x"
            + f"{self.num_steps:7}{self.difference:12.1e}  {', '.join(self.switches)}"
        )


@dataclass(frozen=True)
class Machines:
    """The undisturbed world, one unit being so many nanoseconds."""

    unit_ns: int
    planner: str
    time_limit_s: float

    @property
    def profile(self) -> Profile:
        return Profile(
            model=MODEL.name,
            fingerprint=MODEL.fingerprint(),
            device_type="cpu",
            host="described",
            dtype="float64",
            layers=tuple(self._layer(name) for name in MODEL.layer_configs),
            links=(LinkCost(from_device="cpu", to_device="cpu", latency_ns=0, bytes_per_s=0),),
        )

    def _layer(self, name: str) -> LayerCost:
        forward, inputs, weights = (units * self.unit_ns for units in UNITS[name])
        return LayerCost(
            layer=name,
            microbatch_size=1,
            sequence_length=LENGTH,
            forward_ns=forward,
            backward_ns=inputs + weights,
            input_grad_ns=inputs,
            weight_grad_ns=weights,
            recompute_ns=forward,
            parameter_bytes=10_000_000,
            activation_bytes=1000,
            weight_gradient_bytes=1000,
            input_bytes=1000,
            output_bytes=1000,
        )

    def plan(self) -> Plan:
        stop = MaxRuntime(self.time_limit_s)
        return find_plan(MODEL, CLUSTER, JOB, self.profile, planner=self.planner, stop=stop).best

    def fresh_plan(self, plan: Plan, disturbance: Disturbance) -> Plan:
        """Made for the disturbed world, as it is known to those who disturb it."""
        machines = EmulatedMachines(MODEL, CLUSTER, self.profile, [disturbance])
        world = machines.world(plan, disturbance.first_step)
        problem = world.problem
        result = find_plan(
            MODEL,
            problem.cluster,
            problem.job,
            problem.profile,
            planner=self.planner,
            stop=MaxRuntime(self.time_limit_s),
        )
        return world.by_name(result.best)

    def train(
        self, plan: Plan, steps: int, disturbances: Sequence[Disturbance] = (), *, replans: bool
    ) -> Training:
        machines = EmulatedMachines(MODEL, CLUSTER, self.profile, disturbances)
        replan = Replan(
            CLUSTER,
            self.profile,
            planner=self.planner,
            time_limit_s=self.time_limit_s,
            tell=lambda text: print(text, file=sys.stderr, flush=True),
        )
        return train_local(
            Session(
                plan,
                MODEL,
                batch,
                steps,
                on_start=machines.install,
                replan=replan if replans else None,
            ),
            timeout_s=1200.0,
        )


def batch(step: int) -> Mapping[str, torch.Tensor]:
    tokens = torch.randint(
        11, (NUM_SEQUENCES, LENGTH + 1), generator=torch.Generator().manual_seed(step)
    )
    return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]}


def rows(machines: Machines, steps: int) -> list[Row]:
    plan = machines.plan()
    calm = machines.train(plan, steps, replans=False)
    slow = Disturbance(AT, slow={CLUSTER.devices[1]: 2.0})
    delay_ns = 20 * machines.unit_ns
    pair = CLUSTER.devices[1:3]
    link = Disturbance(AT, delay_ns={(pair[0], pair[1]): delay_ns, (pair[1], pair[0]): delay_ns})
    return [
        row(machines, (plan, calm), name, each, steps)
        for name, each in (("slow worker", slow), ("slow link", link))
    ]


def row(
    machines: Machines,
    undisturbed: tuple[Plan, Training],
    name: str,
    disturbance: Disturbance,
    steps: int,
) -> Row:
    plan, calm = undisturbed
    run = machines.train(plan, steps, [disturbance], replans=True)
    fresh_plan = machines.fresh_plan(plan, disturbance)
    always = replace(disturbance, first_step=0)
    fresh = machines.train(fresh_plan, 16, [always], replans=False)
    first = min((each.step for each in run.switches), default=steps)
    last = max((each.step for each in run.switches), default=steps)
    differences = (abs(ours - own) for ours, own in zip(run.losses, calm.losses, strict=True))
    return Row(
        disturbance=name,
        before_ns=median(run.step_ns[WARM_UP:AT]),
        disturbed_ns=median(run.step_ns[AT:first]),
        replanned_ns=median(run.step_ns[last + WARM_UP :] or [nan]),
        fresh_ns=median(fresh.step_ns[WARM_UP:]),
        switches=tuple(
            f"{each.plan.schedule.name} at {each.step} ({each.gain:.2f}x predicted)"
            for each in run.switches
        ),
        num_steps=len(run.losses),
        difference=max(differences),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planner", default="sweep")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--unit", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machines = Machines(round(options.unit * 1e6), options.planner, options.time_limit)
    if not options.json:
        names = ("before", "disturbed", "re-planned", "fresh plan")
        print(
            f"{'':12}"
            + "".join(f"{each:>12}" for each in names)
            + "   ratio    gain  steps  difference"
        )
    for each in rows(machines, options.steps):
        print(json.dumps({**asdict(each), "ratio": each.ratio}) if options.json else each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
