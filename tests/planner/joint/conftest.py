"""Random small problems with unequal layers, real links and an optimizer."""

import random

import pytest

from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.planner.candidate import Candidate, Shape
from evener.planner.problem import Problem
from evener.schedules import ScheduleShape
from evener.schedules.adaptis_greedy import ADAPTIS_GREEDY
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec


def _layer(name, rng, message_bytes):
    forward, input_grad, weight_grad = (rng.randint(1, 30) for _ in range(3))
    return LayerCost(
        layer=name,
        microbatch_size=1,
        sequence_length=4,
        forward_ns=forward,
        backward_ns=input_grad + weight_grad,
        input_grad_ns=input_grad,
        weight_grad_ns=weight_grad,
        recompute_ns=forward,
        parameter_bytes=4 * rng.randint(0, 5),
        activation_bytes=rng.randint(1, 9),
        weight_gradient_bytes=rng.randint(1, 9),
        input_bytes=rng.randint(0, message_bytes),
        output_bytes=rng.randint(0, message_bytes),
    )


@pytest.fixture
def make_candidate():
    """make_candidate(seed, workers=..., microbatches=..., layers=...) -> Candidate."""

    def make(seed, *, workers, microbatches, layers, message_bytes=9, overhead_ns=0, **job):
        rng = random.Random(seed)
        names = [f"l{i}" for i in range(layers)]
        model = ModelSpec.model_validate(
            {
                "name": "tiny",
                "hidden_size": 1,
                "norm": "none",
                "layer": {name: {"kind": "module", "num_parameters": 0} for name in names},
                "pattern": " ".join(names),
            }
        )
        cluster = ClusterSpec.local(workers)
        profile = Profile(
            model="tiny",
            fingerprint=model.fingerprint(),
            device_type="cpu",
            host="drawn",
            dtype="float32",
            layers=tuple(_layer(name, rng, message_bytes) for name in names),
            links=tuple(
                LinkCost(
                    from_device=a,
                    to_device=b,
                    latency_ns=rng.randint(0, 9),
                    bytes_per_s=rng.choice([0, 500_000_000, 1_000_000_000]),
                )
                for a in cluster.devices
                for b in cluster.devices
                if a != b
            ),
            step_ns_per_parameter_byte=1.5,
            overhead_ns=overhead_ns,
        )
        spec = JobSpec(
            global_batch_sequences=microbatches, sequence_length=4, microbatch_size=1, **job
        )
        shape = Shape(ADAPTIS_GREEDY, ScheduleShape(workers, microbatches), 1, 1)
        return Candidate(Problem(model, cluster, spec, profile), shape)

    return make
