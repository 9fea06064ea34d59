"""Plans around a schedule, and models that other systems know."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

MakePlan = Callable[..., Plan]
MakeModel = Callable[..., ModelSpec]

_LAYERS = {
    "embedding": {"kind": "embedding"},
    "attention": {"kind": "attention", "num_heads": 2, "head_dim": 4},
    "mlp": {"kind": "mlp", "intermediate_size": 12},
    "block": {
        "kind": "block",
        "mixer": {"kind": "attention", "num_heads": 2, "head_dim": 4},
        "feedforward": {"kind": "mlp", "intermediate_size": 12},
    },
    "head": {"kind": "head"},
}


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    """Embedding, blocks of two layers, head; or any other pattern."""

    def make(num_blocks: int, *, tied: bool = False, pattern: str | None = None) -> ModelSpec:
        pattern = pattern or f"embedding {num_blocks} x (attention mlp) head"
        return ModelSpec.model_validate(
            {
                "name": "tiny",
                "hidden_size": 8,
                "vocabulary_size": 11,
                "tied_embeddings": tied,
                "pattern": pattern,
                "layer": {name: spec for name, spec in _LAYERS.items() if name in pattern},
            }
        )

    return make


@pytest.fixture(scope="session")
def make_plan() -> MakePlan:
    """One device a worker, one sequence a microbatch.

    model, cuts: the model, and the layers with which all stages but the first begin; without them
    one layer a stage.
    """

    def make(
        schedule: Schedule,
        *,
        replicas: int = 1,
        tied: tuple[tuple[int, int], ...] = (),
        model: ModelSpec | None = None,
        cuts: tuple[int, ...] = (),
    ) -> Plan:
        num_workers = schedule.num_workers * replicas
        if model is None:
            names = tuple(f"layer{stage}" for stage in range(schedule.num_stages))
            cuts = tuple(range(1, schedule.num_stages))
        else:
            names = tuple(layer.name for layer in model.layers)
            last = schedule.num_stages - 1
            tied = ((0, last),) if model.tied_embeddings and last else ()
        return Plan(
            model="tiny",
            model_fingerprint="0" * 64 if model is None else model.fingerprint(),
            layer_names=names,
            partition=tuple(pairwise((0, *cuts, len(names)))),
            devices=tuple((f"node0/{worker}",) for worker in range(num_workers)),
            replicas=replicas,
            microbatch_size=1,
            sequence_length=8,
            job=JobSpec(
                global_batch_sequences=schedule.update_size * replicas,
                sequence_length=8,
                microbatch_size=1,
                asynchronous=schedule.updates.number > 1,
            ),
            tied=tied,
            schedule=schedule,
            slice_tokens=_slice_tokens(schedule),
        )

    return make


def _slice_tokens(schedule: Schedule) -> tuple[int, ...] | None:
    """Of 8 tokens: one each, and the rest in the first slice."""
    others = (1,) * (schedule.num_slices - 1)
    return (8 - len(others), *others) if others else None
