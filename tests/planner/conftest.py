"""Planning problems small enough to work out by hand."""

import pytest

from evener.cost.profile import LayerCost, Profile
from evener.planner.problem import Problem
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec


def _model(num_layers):
    return ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 1,
            "norm": "none",
            "layer": {f"l{i}": {"kind": "module", "num_parameters": 0} for i in range(num_layers)},
            "pattern": " ".join(f"l{i}" for i in range(num_layers)),
        }
    )


def _cost(layer, forward_ns, size, activation_bytes, parameter_bytes):
    """Backward twice the forward, half of it for the weights; messages are empty."""
    return LayerCost(
        layer=layer,
        microbatch_size=size,
        sequence_length=4,
        forward_ns=size * forward_ns,
        backward_ns=2 * size * forward_ns,
        input_grad_ns=size * forward_ns,
        weight_grad_ns=size * forward_ns,
        recompute_ns=size * forward_ns,
        parameter_bytes=parameter_bytes,
        activation_bytes=activation_bytes,
        weight_gradient_bytes=activation_bytes,
        input_bytes=0,
        output_bytes=0,
    )


@pytest.fixture
def make_problem():
    """make_problem([forward_ns per layer], num_workers=..., num_sequences=...) -> Problem."""

    def make(
        forward_ns,
        *,
        num_workers,
        num_sequences,
        sizes=(1,),
        activation_bytes=0,
        parameter_bytes=0,
        **job,
    ):
        model = _model(len(forward_ns))
        profile = Profile(
            model="tiny",
            fingerprint=model.fingerprint(),
            device_type="cpu",
            host="paper",
            dtype="float32",
            layers=tuple(
                _cost(layer.config, own_ns, size, activation_bytes, parameter_bytes)
                for size in sizes
                for layer, own_ns in zip(model.layers, forward_ns, strict=True)
            ),
            links=_free_links(num_workers),
        )
        spec = JobSpec(global_batch_sequences=num_sequences, sequence_length=4, **job)
        return Problem(model, ClusterSpec.local(num_workers), spec, profile)

    return make


def _free_links(num_workers):
    names = [f"local:{i}" for i in range(num_workers)]
    return tuple(
        {"from_device": a, "to_device": b, "latency_ns": 0, "bytes_per_s": 0}
        for a in names
        for b in names
        if a != b
    )
