"""Four layers of two kinds on two devices, in times that can be added in the head."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.ir.action import Kind
from evener.ir.dependencies import resolve
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.planner.replan.drift import Drift, Expected
from evener.planner.replan.observation import Observation
from evener.planner.replan.world import World
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim.engine import simulate
from evener.spec import ClusterSpec, JobSpec, ModelSpec

MLP = {"kind": "mlp", "intermediate_size": 4, "gated": False}
MODEL = ModelSpec.model_validate(
    {
        "name": "four",
        "hidden_size": 4,
        "vocabulary_size": 5,
        "pattern": "embedding wide narrow head",
        "layer": {
            "embedding": {"kind": "embedding"},
            "wide": MLP,
            "narrow": MLP,
            "head": {"kind": "head"},
        },
    }
)
UNITS = {"embedding": 1, "wide": 3, "narrow": 2, "head": 2}
UNIT_NS = 1_000_000


class Small:
    """Forward takes the units above in milliseconds, either half of the backward as much."""

    model = MODEL

    def cluster(self, num_workers: int = 2) -> ClusterSpec:
        return ClusterSpec.local(num_workers)

    def profile(self, units: Mapping[str, int] = UNITS) -> Profile:
        return Profile(
            model=MODEL.name,
            fingerprint=MODEL.fingerprint(),
            device_type="cpu",
            host="described",
            dtype="float32",
            layers=tuple(_layer(name, number * UNIT_NS) for name, number in units.items()),
            links=(LinkCost(from_device="cpu", to_device="cpu", latency_ns=0, bytes_per_s=0),),
        )

    def plan(
        self,
        partition: Sequence[tuple[int, int]] = ((0, 2), (2, 4)),
        *,
        schedule: str = "one_f_one_b",
        devices: Sequence[str] = ("local:0", "local:1"),
    ) -> Plan:
        chunks = len(partition) // len(devices)
        shape = ScheduleShape(len(devices), 4, chunks)
        return Plan(
            model=MODEL.name,
            model_fingerprint=MODEL.fingerprint(),
            layer_names=tuple(layer.name for layer in MODEL.layers),
            partition=tuple(partition),
            devices=tuple((name,) for name in devices),
            microbatch_size=1,
            sequence_length=8,
            job=JobSpec(global_batch_sequences=4, sequence_length=8, microbatch_size=1),
            schedule=SCHEDULES[schedule](shape),
        )

    def world(self, plan: Plan | None = None) -> World:
        return World.of(plan or self.plan(), MODEL, self.cluster(), self.profile())

    def measured(self, plan: Plan, world: World) -> Timeline:
        """A simulated step with messages as a run notes them: from being issued to being taken."""
        timeline = simulate(plan.lowered(), world.costs(plan))
        start_ns, end_ns = timeline.start_ns[:], timeline.end_ns[:]
        found = resolve(timeline.schedule)
        for index, needs in enumerate(found.needs):
            for need in needs:
                if found.actions[need].kind in (Kind.RECV_F, Kind.RECV_B):
                    send = found.match[need]
                    start_ns[need] = start_ns[send]
                    end_ns[send] = end_ns[need] = start_ns[index]
        return Timeline("measured", timeline.schedule, start_ns, end_ns)

    def seen(self, plan: Plan, world: World) -> Observation:
        """What a step in that world tells."""
        return Expected(plan, world).observer.read(self.measured(plan, world))

    def drift(
        self, plan: Plan, believed: World, real: World, *, trusts_layers: bool = True
    ) -> Drift:
        """What it tells somebody who believes in another one."""
        return Expected(plan, believed).compare(
            self.seen(plan, real), threshold=1.2, trusts_layers=trusts_layers
        )


def _layer(name: str, time_ns: int) -> LayerCost:
    sizes: dict[str, Any] = dict.fromkeys(
        ("activation_bytes", "weight_gradient_bytes", "input_bytes", "output_bytes"), 100
    )
    return LayerCost(
        layer=name,
        microbatch_size=1,
        sequence_length=8,
        forward_ns=time_ns,
        backward_ns=2 * time_ns,
        input_grad_ns=time_ns,
        weight_grad_ns=time_ns,
        recompute_ns=time_ns,
        parameter_bytes=100,
        **sizes,
    )


@pytest.fixture
def small() -> Small:
    return Small()
