"""What cannot be right is refused, on every rank alike, with the way out."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.errors import ExecutionError, PlanError, UsageError
from evener.executor.train import Trainer

ONE = ((0,),)
CHAIN = ((0,), (1,))
SLOW = {"optimizer": {"kind": "sgd", "learning_rate": 1e-3}}
WIDE = ((0, 1, 1), (2,))


def tied() -> list[nn.Module]:
    layers = [nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False)]
    layers[2].weight = layers[0].weight
    return layers


@pytest.mark.parametrize(
    ("dtypes", "text"),
    [
        ({"gradients": "bfloat16"}, "dtypes.gradients is bfloat16, but dtypes.parameters is"),
        ({"optimizer": "float64"}, "dtypes.optimizer is float64, but dtypes.parameters is"),
        ({"activations": "float16"}, "dtypes.activations is float16 with parameters in float32"),
        (
            dict.fromkeys(("parameters", "gradients", "optimizer", "activations"), "float8"),
            "dtypes.parameters is float8, which torch cannot train in; choose bfloat16",
        ),
    ],
)
def test_number_formats_that_torch_does_not_keep(tiny: Any, dtypes: Any, text: str) -> None:
    plan = tiny.plan(tiny.schedule(ONE, 1), ((0, 3),), dtypes=dtypes)
    with pytest.raises(UsageError, match=text):
        tiny.train(plan, tiny.mlp, lambda trainer: None)


def test_fewer_samples_than_microbatches_are_refused_before_anything_is_sent(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 4), ((0, 2), (2, 3)))

    def work(trainer: Trainer) -> str:
        with pytest.raises(UsageError) as caught:
            trainer.step({"inputs": tiny.rows(3)})
        trainer.step({"inputs": tiny.rows(4)})
        return str(caught.value)

    text = (
        "the batch cannot be cut into microbatches\n"
        "  it has 3 samples for 4 microbatches; give at least one sample for each, or plan with "
        "fewer microbatches"
    )
    assert tiny.train(plan, tiny.mlp, work) == [text, text]


def test_a_batch_in_which_nothing_counts_is_refused(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(ONE, 1), ((0, 3),))
    with pytest.raises(UsageError, match="no token of it counts"):
        tiny.train(plan, tiny.mlp, lambda trainer: trainer.step({"inputs": tiny.rows(2)}, count=0))


def test_a_batch_without_samples_is_refused(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 2), ((0, 2), (2, 3)))
    for run in (Trainer.step, Trainer.evaluate):
        with pytest.raises(UsageError, match="it has no samples; give at least one"):
            tiny.train(
                plan, tiny.mlp, lambda trainer, run=run: run(trainer, {"inputs": tiny.rows(0)})
            )


def test_another_number_of_layers_is_refused(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 2), ((0, 2), (2, 4)))
    with pytest.raises(PlanError) as caught:
        tiny.train(plan, tiny.mlp, lambda trainer: None)
    assert str(caught.value) == (
        "the plan does not fit the model\n"
        '  the plan is for the 4 layers of model "tiny", but the model that was given has 3; plan '
        "for it, or give the model of the plan"
    )


def test_ranks_that_start_from_different_weights_are_refused(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(((0, 1),), 2), ((0, 3),))
    with pytest.raises(UsageError, match=r"0\.weight differs between workers 0 and 1; build"):
        tiny.train(plan, tiny.mlp, lambda trainer: None, seeds=(0, 1))


def frozen(worker: int) -> nn.Module:
    return nn.Linear(3, 3).requires_grad_(False)._apply(lambda values: values + worker)


def half_frozen(worker: int) -> nn.Module:
    return nn.Linear(3, 3).requires_grad_(worker == 0)


def buffered(worker: int) -> nn.Module:
    block = nn.BatchNorm1d(3)
    block.running_mean += worker
    return block


def permuted(worker: int) -> nn.Module:
    block = nn.Linear(3, 3)
    if worker:
        block.weight.data = block.weight.data.flip(0)
    return block


@pytest.mark.parametrize(
    ("make", "name"),
    [(frozen, "bias"), (half_frozen, "bias"), (buffered, "running_mean"), (permuted, "weight")],
)
def test_replicas_that_differ_in_any_value_are_refused(make: Any, name: str, tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(((0, 1),), 2), ((0, 2),))
    workers = iter(range(2))
    with pytest.raises(UsageError, match=rf"1\.{name} differs between workers 0 and 1; build"):
        tiny.train(
            plan,
            lambda: [nn.Linear(3, 3), make(next(workers))],
            lambda trainer: None,
            seeds=(0, 0),
        )


def test_replicas_may_start_from_the_same_nan(tiny: Any) -> None:
    def make() -> list[nn.Module]:
        block = nn.Linear(3, 3)
        block.weight.data[0, 0] = float("nan")
        return [block]

    plan = tiny.plan(tiny.schedule(((0, 1),), 2), ((0, 1),))
    assert tiny.train(plan, make, lambda trainer: "trains", seeds=(0, 0)) == ["trains"] * 2


def test_shared_weights_that_the_plan_does_not_list_are_refused(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(ONE * 2, 1), ((0, 1), (1, 3)))
    with pytest.raises(UsageError) as caught:
        tiny.train(plan, tied, lambda trainer: None)
    assert str(caught.value) == (
        "the plan and the model disagree about shared parameters\n"
        "  0.weight is shared by stages 0 and 1, which the plan does not list as tied; add [0, 1] "
        "to the plan's `tied`"
    )


def test_tied_stages_that_share_nothing_are_refused(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(ONE * 2, 1), ((0, 1), (1, 3)), tied=[(0, 1)])
    with pytest.raises(UsageError, match="lists stages 0 and 1 as tied, but in the model they"):
        tiny.train(plan, tiny.mlp, lambda trainer: None)


def test_weights_shared_by_three_stages_are_refused(tiny: Any) -> None:
    def make() -> list[nn.Module]:
        block = nn.Linear(3, 3)
        return [block, block, block]

    plan = tiny.plan(tiny.schedule(ONE * 3, 1), ((0, 1), (1, 2), (2, 3)))
    with pytest.raises(UsageError, match="shared by stages 0, 1, 2; at most two stages can"):
        tiny.train(plan, make, lambda trainer: None)


def test_what_cannot_be_sent_is_refused_where_it_is_made(tiny: Any) -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, float]:
            return x, 3.0

    plan = tiny.plan(tiny.schedule(ONE * 2, 1), ((0, 1), (1, 2)))
    with pytest.raises(ExecutionError, match="failed in 0F0") as caught:
        tiny.train(
            plan,
            lambda: [Wrong(), nn.Tanh()],
            lambda trainer: trainer.step({"inputs": tiny.rows(1)}),
        )
    assert "got float; stages exchange tensors, None, and tuples" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_slices": 2}, "it has 2 slices, but the numbers of their tokens are not given"),
        (
            {"edges": ((1, 0),)},
            r"its stages begin with \[1\] and end with \[0\]; let stage 0 alone",
        ),
    ],
)
def test_schedules_that_it_cannot_run_yet_are_refused(tiny: Any, change: Any, text: str) -> None:
    from evener.executor.torch_engine import TorchEngine
    from evener.executor.worker_model import WorkerModel

    schedule = replace(tiny.schedule(CHAIN, 1), **change)
    with pytest.raises(UsageError, match=text):
        TorchEngine(
            schedule,
            WorkerModel({}, {}, {}, {}),
            worker=0,
            loss=tiny.loss,
            device=torch.device("cpu"),
        )
