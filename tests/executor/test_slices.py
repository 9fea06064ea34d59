"""Microbatches in slices of tokens: what a user's model and data may be, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.errors import ExecutionError, UsageError
from evener.executor.parity_grid import spread
from evener.executor.train import StepResult, Trainer
from evener.ir.plan import Plan

CHAIN = ((0,), (1,))


class Sum(nn.Module):
    """Each token becomes the sum of a product over itself and all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, scale: Tensor, slice_context: Any = None) -> Tensor:
        y = self.linear(x)
        if slice_context is not None:
            (y,) = slice_context.extended(y, dim=1)
        return scale * y.cumsum(1)[:, -x.shape[1] :]


class OddTokensLoss:
    """Squares of the tokens that count; a constant where none does."""

    def count(self, microbatch: dict[str, Any]) -> int:
        return int(microbatch["counts"].sum())

    def total(self, output: Tensor, microbatch: dict[str, Any]) -> Tensor:
        counts = microbatch["counts"]
        if not counts.any():
            return torch.zeros(())
        return output[counts].square().sum()


class TokenSquares:
    """Squares of everything; each token counts."""

    def count(self, microbatch: dict[str, Any]) -> int:
        return microbatch["inputs"].shape[:2].numel()

    def total(self, output: Tensor, microbatch: dict[str, Any]) -> Tensor:
        return output.square().sum()


def make() -> list[nn.Module]:
    return [nn.Linear(3, 3), Sum(), nn.Tanh(), Sum()]


def plan_of(tiny: Any, slice_tokens: tuple[int, ...], **options: Any) -> Plan:
    schedule = spread(CHAIN, 2, num_slices=len(slice_tokens), **options)
    slow = {"kind": "sgd", "learning_rate": 1e-3}
    return tiny.plan(schedule, ((0, 2), (2, 4)), slice_tokens=slice_tokens, optimizer=slow)


def batch(num_tokens: int = 6) -> dict[str, Tensor]:
    counts = torch.zeros(4, num_tokens, dtype=torch.bool)
    counts[0, -1] = counts[1, 1] = counts[3, 0] = True
    return {
        "inputs": torch.linspace(-1, 1, 12 * num_tokens).view(4, num_tokens, 3),
        "scale": torch.linspace(0.1, 0.2, num_tokens).view(1, num_tokens, 1),
        "counts": counts,
    }


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("slice_tokens", [(2, 4), (1, 3, 2)])
def test_gradients_are_those_of_whole_microbatches(
    tiny: Any, slice_tokens: tuple[int, ...], recomputes: bool
) -> None:
    def work(trainer: Trainer) -> tuple[dict[str, Tensor], StepResult]:
        found = tiny.gradients_of(trainer)
        trainer.step(batch(12))  # cut in proportion
        return found, trainer.step(batch())

    loss = OddTokensLoss()
    plan = plan_of(tiny, slice_tokens, recomputes=recomputes)
    ours = tiny.train(plan, make, work, loss=loss)
    theirs = tiny.train(plan_of(tiny, (6,)), make, work, loss=loss)
    tiny.assert_close(*(tiny.merged([g for g, _ in each]) for each in (ours, theirs)))
    assert ours[0][1].loss == pytest.approx(theirs[0][1].loss, rel=1e-6)


def test_evaluation_gives_the_outputs_of_whole_microbatches(tiny: Any) -> None:
    def work(trainer: Trainer) -> StepResult:
        trainer.step(batch())
        return trainer.evaluate(batch(), outputs=True)

    loss = OddTokensLoss()
    ours = tiny.train(plan_of(tiny, (1, 3, 2)), make, work, loss=loss)[1].outputs
    theirs = tiny.train(plan_of(tiny, (6,)), make, work, loss=loss)[1].outputs
    assert list(ours) == [0, 1]
    for microbatch, output in ours.items():
        assert torch.allclose(output, theirs[microbatch], atol=1e-5)


TOO_SHORT = (
    "  the sequences of microbatch 0 have 2 tokens, too few for 3 slices in the plan's proportion; "
    "give longer ones, or plan with fewer slices\n"
    "  the sequences of microbatch 1 have 2 tokens, too few"
)
NO_TOKENS = (
    '  "inputs" should be a tensor with samples along dimension 0 and tokens along dimension 1, '
    "but is [2]; give such a one, or plan without slices"
)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (torch.zeros(4, 2, 3), TOO_SHORT),
        (torch.zeros(4), NO_TOKENS),
    ],
)
def test_data_that_cannot_be_cut_is_refused(tiny: Any, inputs: Tensor, text: str) -> None:
    def work(trainer: Trainer) -> str:
        with pytest.raises(UsageError) as caught:
            trainer.step({"inputs": inputs})
        return str(caught.value)

    for refusal in tiny.train(plan_of(tiny, (1, 3, 2)), make, work):
        assert refusal.startswith("the batch cannot be cut into slices of tokens\n" + text)


def test_a_loss_that_counts_samples_is_refused(tiny: Any) -> None:
    def work(trainer: Trainer) -> None:
        with pytest.raises(
            UsageError, match=r"counts 2 in a microbatch, but 2 \+ 2 in its slices; a"
        ):
            trainer.step({"inputs": torch.zeros(4, 6, 3)})

    tiny.train(plan_of(tiny, (3, 3)), make, work)


def test_outputs_without_tokens_cannot_be_put_together(tiny: Any) -> None:
    class Last(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, -1, 0]

    def work(trainer: Trainer) -> None:
        if trainer.transport.worker == 1:
            with pytest.raises(UsageError, match=r"has the shape \[2\], without tokens along dim"):
                trainer.evaluate({"inputs": torch.zeros(4, 6, 3)}, outputs=True)
        else:
            trainer.evaluate({"inputs": torch.zeros(4, 6, 3)}, outputs=True)

    tiny.train(plan_of(tiny, (3, 3)), lambda: [*[nn.Tanh()] * 3, Last()], work, loss=TokenSquares())


def test_layers_that_cannot_be_sliced_are_refused(tiny: Any) -> None:
    with pytest.raises(UsageError, match="3: its GRU mixes tokens, and its forward takes no"):
        tiny.train(plan_of(tiny, (3, 3)), lambda: [*make()[:3], nn.GRU(3, 3)], lambda trainer: None)


def test_a_block_that_mixes_tokens_without_a_context_is_refused(tiny: Any) -> None:
    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.cumsum(1)

    with pytest.raises(
        ExecutionError, match=r"failed in 0F0\.0 .*\n?.*cannot be computed in slices"
    ):
        tiny.train(
            plan_of(tiny, (3, 3)),
            lambda: [nn.Tanh(), Mixing(), *[nn.Tanh()] * 2],
            lambda trainer: trainer.step({"inputs": torch.ones(4, 6, 3)}),
            loss=TokenSquares(),
        )


def test_a_misuse_of_the_context_names_the_action(tiny: Any) -> None:
    class Forgetful(nn.Module):
        def forward(self, x: Tensor, slice_context: Any = None) -> Tensor:
            if slice_context.offset == 0:
                slice_context.extended(x, dim=1)
            return x

    with pytest.raises(ExecutionError, match=r"failed in 0F0\.1 .*more or less often than for an"):
        tiny.train(
            plan_of(tiny, (3, 3)),
            lambda: [Forgetful(), *[nn.Tanh()] * 3],
            lambda trainer: trainer.step({"inputs": torch.zeros(4, 6, 3)}),
            loss=TokenSquares(),
        )
