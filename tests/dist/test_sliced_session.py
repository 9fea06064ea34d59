"""A whole training run by a plan with slices, as ``evener train`` does it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from evener.errors import UsageError
from evener.executor.parity_grid import spread
from evener.executor.session import Session, train_local
from evener.executor.train import Trainer
from evener.executor.verify import tiny_model
from evener.ir.plan import Plan, tied_stages
from evener.modules.reference import build_layers
from evener.spec.job import JobSpec

pytestmark = pytest.mark.dist

LENGTH = 12


def plan_of(slice_tokens: tuple[int, ...] | None, *, spread_head: bool = False) -> Plan:
    model, partition = tiny_model(6, tied=not spread_head, dropout=0.1), ((0, 3), (3, 6))
    return Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=partition,
        devices=(("cpu:0",), ("cpu:1",)),
        microbatch_size=2,
        sequence_length=LENGTH,
        slice_tokens=slice_tokens,
        job=JobSpec(
            global_batch_sequences=4,
            sequence_length=LENGTH,
            clip_norm=0.5,
            spread_head=spread_head,
        ),
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


def test_losses_do_not_depend_on_where_the_head_is() -> None:
    model, plan = tiny_model(6, tied=False, dropout=0.1), plan_of((5, 4, 3), spread_head=True)
    job = plan.job.model_copy(update={"spread_head": False})
    spread, whole = (
        train_local(Session(each, model, batch, 2), timeout_s=60)
        for each in (plan, plan.changed(job=job))
    )
    assert spread.losses == pytest.approx(whole.losses, rel=1e-5)
    assert spread.grad_norms == pytest.approx(whole.grad_norms, rel=1e-4)
    assert spread.timeline.schedule.num_stages == whole.timeline.schedule.num_stages + 3


def test_an_evaluation_gives_its_loss_and_no_logits() -> None:
    model, plan = tiny_model(6, tied=False, dropout=0.1), plan_of((5, 4, 3), spread_head=True)
    layers = nn.Sequential(*build_layers(model, seed=plan.job.seed).values()).eval()
    tokens = batch(0)
    expected = functional.cross_entropy(layers(tokens["inputs"]).mT, tokens["targets"]).item()

    def work(trainer: Trainer) -> None:
        assert trainer.evaluate(batch(0)).loss == pytest.approx(expected, rel=1e-6)
        with pytest.raises(UsageError, match="none of which has whole logits; ask for the loss"):
            trainer.evaluate(batch(0), outputs=True)

    train_local(Session(plan, model, batch, 1, on_start=work), timeout_s=60)
