"""A model of every sort of layer that matters here, small enough for a test."""

import pytest

from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec


@pytest.fixture
def model() -> ModelSpec:
    return ModelSpec(
        name="tiny",
        hidden_size=8,
        vocabulary_size=11,
        layer_configs={
            "embedding": {"kind": "embedding"},
            "attention": {"kind": "attention", "num_heads": 2, "head_dim": 4},
            "mlp": {"kind": "mlp", "intermediate_size": 16},
            "head": {"kind": "head"},
        },
        pattern="embedding 2 x (attention mlp) head",
    )


@pytest.fixture
def job() -> JobSpec:
    return JobSpec(sequence_length=4)
