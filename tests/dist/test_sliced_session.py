"""A whole training run by a plan with slices, as ``evener train`` does it."""

import pytest
import torch
from torch import Tensor

from evener.executor.parity_grid import spread
from evener.executor.session import Session, train_local
from evener.executor.verify import tiny_model
from evener.ir.plan import Plan, tied_stages
from evener.spec.job import JobSpec

pytestmark = pytest.mark.dist

LENGTH = 12


def plan_of(slice_tokens: tuple[int, ...] | None) -> Plan:
    model, partition = tiny_model(6, tied=True, dropout=0.1), ((0, 3), (3, 6))
    return Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=partition,
        devices=(("cpu:0",), ("cpu:1",)),
        microbatch_size=2,
        sequence_length=LENGTH,
        slice_tokens=slice_tokens,
        job=JobSpec(global_batch_sequences=4, sequence_length=LENGTH, clip_norm=0.5),
        tied=tied_stages(model, partition),
        schedule=spread(((0,), (1,)), 2, num_slices=len(slice_tokens or (0,))),
    )


def batch(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs, targets = torch.randint(11, (2, 4, LENGTH), generator=generator)
    return {"inputs": inputs, "targets": targets}


def test_losses_do_not_depend_on_the_slices() -> None:
    model = tiny_model(6, tied=True, dropout=0.1)
    whole, sliced = (
        train_local(Session(plan_of(tokens), model, batch, 4), timeout_s=60)
        for tokens in (None, (5, 4, 3))
    )
    # 4 steps of Adam in float32 from the same numbers.
    assert sliced.losses == pytest.approx(whole.losses, rel=1e-5)
    assert sliced.grad_norms == pytest.approx(whole.grad_norms, rel=1e-4)
    assert len(sliced.timeline.schedule.workers[0]) > len(whole.timeline.schedule.workers[0])
