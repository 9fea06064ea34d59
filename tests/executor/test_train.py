"""What one rank does, against a plain loop over the same layers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.executor.train import StepResult, Trainer
from evener.ir.action import Kind
from evener.schedules import ScheduleShape, one_f_one_b, split_backward

ONE = ((0,),)
CHAIN = ((0,), (1,))
SLOW = {"optimizer": {"kind": "sgd", "learning_rate": 1e-3}}
WIDE = ((0, 1, 1), (2,))


@pytest.mark.parametrize("holders", [((0,), (0,)), CHAIN, WIDE])
def test_gradients_and_loss_are_those_of_one_backward(tiny: Any, holders: Any) -> None:
    plan = tiny.plan(tiny.schedule(holders, 3), ((0, 2), (2, 3)))

    def work(trainer: Trainer) -> tuple[dict[str, Tensor], StepResult]:
        found = tiny.gradients_of(trainer)
        return found, trainer.step({"inputs": tiny.rows(7)})

    results = tiny.train(plan, tiny.mlp, work)
    tiny.assert_close(
        tiny.merged([found for found, _ in results]),
        tiny.whole(tiny.seeded(tiny.mlp), tiny.rows(7)),
    )
    expected = nn.Sequential(*tiny.seeded(tiny.mlp))(tiny.rows(7)).square().sum() / 7
    for _, result in results:
        assert result.loss == pytest.approx(expected.item(), rel=1e-6)
        assert result.loss == results[0][1].loss
        assert result.count == 7
        assert len(result.microbatch_losses) == 3


@pytest.mark.parametrize("num_microbatches", [1, 2, 5])
def test_gradients_do_not_depend_on_the_number_of_microbatches(
    tiny: Any, num_microbatches: int
) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, num_microbatches), ((0, 2), (2, 3)))

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.step({"inputs": tiny.rows(7)})
        return found

    ours = tiny.merged(tiny.train(plan, tiny.mlp, work))
    tiny.assert_close(ours, tiny.whole(tiny.seeded(tiny.mlp), tiny.rows(7)))


def test_a_step_moves_the_parameters_by_the_learning_rate(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 2), ((0, 2), (2, 3)))

    def work(trainer: Trainer) -> dict[str, Tensor]:
        trainer.set_learning_rate(0.5)
        trainer.step({"inputs": tiny.rows(4)})
        return {name: p.detach() for name, p in trainer.model.parameters.items()}

    gradients = tiny.whole(tiny.seeded(tiny.mlp), tiny.rows(4))
    before = dict(nn.Sequential(*tiny.seeded(tiny.mlp)).named_parameters())
    after = tiny.merged(tiny.train(plan, tiny.mlp, work))
    tiny.assert_close(after, {name: before[name] - 0.5 * gradients[name] for name in before})


@pytest.mark.parametrize("holders", [CHAIN, WIDE])
def test_accumulated_gradients_are_the_sum(tiny: Any, holders: Any) -> None:
    plan = tiny.plan(tiny.schedule(holders, 3), ((0, 2), (2, 3)))
    batches = [tiny.rows(3), tiny.rows(6) + 1, tiny.rows(4) * 2]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        for batch in batches[:-1]:
            trainer.accumulate({"inputs": batch}, count=13)
        trainer.step({"inputs": batches[-1]}, count=13)
        return found

    ours = tiny.merged(tiny.train(plan, tiny.mlp, work))
    tiny.assert_close(ours, tiny.whole(tiny.seeded(tiny.mlp), torch.cat(batches)))


def test_accumulation_divides_each_batch_by_its_own_count_by_default(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 2), ((0, 2), (2, 3)))

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.accumulate({"inputs": tiny.rows(2)})
        trainer.step({"inputs": tiny.rows(4)})
        return found

    layers = tiny.seeded(tiny.mlp)
    tiny.whole(layers, tiny.rows(2))
    tiny.assert_close(
        tiny.merged(tiny.train(plan, tiny.mlp, work)), tiny.whole(layers, tiny.rows(4))
    )


def test_evaluation_between_steps_has_any_size_and_changes_nothing(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 4), ((0, 2), (2, 3)))

    def make() -> list[nn.Module]:
        return [nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)]

    def work(trainer: Trainer) -> list[StepResult]:
        found = [
            trainer.evaluate({"inputs": tiny.rows(size)}, outputs=True) for size in (8, 4, 8, 3)
        ]
        trainer.step({"inputs": tiny.rows(8)})
        found.append(trainer.evaluate({"inputs": tiny.rows(8)}))
        trainer.step({"inputs": tiny.rows(4)})
        return found

    def only_steps(trainer: Trainer) -> dict[str, Tensor]:
        trainer.step({"inputs": tiny.rows(8)})
        trainer.step({"inputs": tiny.rows(4)})
        return {name: p.detach() for name, p in trainer.model.parameters.items()}

    def steps_and_evaluation(trainer: Trainer) -> dict[str, Tensor]:
        work(trainer)
        return {name: p.detach() for name, p in trainer.model.parameters.items()}

    model = nn.Sequential(*tiny.seeded(make)).eval()
    _, last = tiny.train(plan, make, work)
    for result, size in zip(last[:4], (8, 4, 8, 3), strict=True):
        outputs = torch.cat([result.outputs[m] for m in range(len(result.outputs))])
        assert torch.allclose(outputs, model(tiny.rows(size)), atol=1e-6)
        assert result.loss == pytest.approx((model(tiny.rows(size)).square().sum() / size).item())
    assert tiny.merged(tiny.train(plan, make, only_steps)).keys() == {
        f"{layer}.{name}" for layer in (0, 2) for name in ("weight", "bias")
    }
    with_evaluation = tiny.merged(tiny.train(plan, make, steps_and_evaluation))
    tiny.assert_close(with_evaluation, tiny.merged(tiny.train(plan, make, only_steps)))


def test_every_microbatch_may_have_its_own_length(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 3), ((0, 2), (2, 3)))
    batches = [
        [tiny.rows(2 * n).view(2, n, 3) for n in lengths] for lengths in ((5, 7, 2), (4, 5, 9))
    ]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        trainer.step([{"inputs": each} for each in batches[0]])
        found = tiny.gradients_of(trainer)
        trainer.step([{"inputs": each} for each in batches[1]])
        return found

    ours = tiny.merged(
        tiny.train(plan, tiny.mlp, work, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    )
    layers = tiny.seeded(tiny.mlp)
    for each in batches[1]:
        theirs = tiny.whole(layers, each, count=6)
    tiny.assert_close(ours, theirs)


def test_the_norm_is_bitwise_the_same_however_the_model_is_split(tiny: Any) -> None:
    def work(trainer: Trainer) -> float | None:
        return trainer.step({"inputs": tiny.rows(3)}).grad_norm

    norms = set()
    for holders, cuts in (
        (ONE, [(0, 6)]),
        (CHAIN, [(0, 3), (3, 6)]),
        (((0,), (0,), (1,)), [(0, 3), (3, 5), (5, 6)]),
    ):
        plan = tiny.plan(tiny.schedule(holders, 3), cuts, clip_norm=0.1)
        norms.update(tiny.train(plan, lambda: [nn.Linear(3, 3) for _ in range(6)], work))
    assert len(norms) == 1
    (norm,) = norms
    gradients = tiny.whole(tiny.seeded(lambda: [nn.Linear(3, 3) for _ in range(6)]), tiny.rows(3))
    expected = torch.nn.utils.get_total_norm(list(gradients.values()))
    assert norm == pytest.approx(float(expected), rel=1e-5)


def test_clipping_scales_like_torch(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(WIDE, 3), ((0, 2), (2, 3)), clip_norm=0.01)

    def work(trainer: Trainer) -> dict[str, Tensor]:
        trainer.step({"inputs": tiny.rows(3)})
        return {name: p.detach() for name, p in trainer.model.parameters.items()}

    model = nn.Sequential(*tiny.seeded(tiny.mlp))
    (model(tiny.rows(3)).square().sum() / 3).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    tiny.assert_close(tiny.merged(tiny.train(plan, tiny.mlp, work)), dict(model.named_parameters()))


def tied() -> list[nn.Module]:
    layers = [nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False)]
    layers[2].weight = layers[0].weight
    return layers


@pytest.mark.parametrize("holders", [CHAIN, WIDE, ((0,), (0,)), ((0, 1), (1, 0))])
def test_tied_weights_stay_equal_and_count_once(tiny: Any, holders: Any) -> None:
    plan = tiny.plan(
        tiny.schedule(holders, 3), ((0, 1), (1, 3)), tied=[(0, 1)], clip_norm=1e9, **SLOW
    )
    tokens = torch.tensor([0, 1, 4])

    def work(trainer: Trainer) -> tuple[dict[str, Tensor], float | None]:
        found = tiny.gradients_of(trainer)
        results = [trainer.step({"inputs": tokens}) for _ in range(5)]
        weights = {f"after {n}": p.detach() for n, p in trainer.model.parameters.items()}
        return {**found, **weights}, results[-1].grad_norm

    results = tiny.train(plan, tied, work)
    found = tiny.merged([each for each, _ in results])
    model = nn.Sequential(*tiny.seeded(tied))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        (model(tokens).square().sum() / 3).backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        optimizer.step()
    expected = {name: p.grad for name, p in model.named_parameters()}
    expected |= {f"after {name}": p.detach() for name, p in model.named_parameters()}
    tiny.assert_close(found, expected)
    for _, ours in results:
        assert ours == pytest.approx(float(norm), rel=1e-5)


def test_recomputed_forwards_draw_the_same_dropout(tiny: Any) -> None:
    def make() -> list[nn.Module]:
        return [nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2), nn.Dropout(0.5)]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.step({"inputs": tiny.rows(6)})
        return found

    plain = tiny.schedule(((0,), (0,)), 3)
    recomputed = replace(
        plain,
        workers=tuple(
            tuple(
                each
                for action in actions
                for each in (
                    (action._replace(kind=Kind.R), action) if action.kind is Kind.B else (action,)
                )
            )
            for actions in plain.workers
        ),
    )
    cuts = ((0, 2), (2, 4))
    (expected,) = tiny.train(tiny.plan(plain, cuts), make, work)
    (ours,) = tiny.train(tiny.plan(recomputed, cuts), make, work)
    tiny.assert_close(ours, expected)
    (other_seed,) = tiny.train(tiny.plan(plain, cuts, dropout_seed=5), make, work)
    assert not torch.equal(other_seed["0.weight"], expected["0.weight"])


def test_the_timeline_is_everybodys(tiny: Any) -> None:
    plan = tiny.plan(one_f_one_b(ScheduleShape(2, 3)), ((0, 2), (2, 3)))
    results = tiny.train(
        plan, tiny.mlp, lambda trainer: trainer.step({"inputs": tiny.rows(3)}, timeline=True)
    )
    for result in results:
        assert result.timeline is not None
        assert result.timeline.schedule == plan.lowered()
        assert result.timeline.step_ns > 0


def test_the_callers_random_numbers_are_left_alone(tiny: Any) -> None:
    def work(trainer: Trainer) -> Tensor:
        torch.manual_seed(3)
        trainer.step({"inputs": tiny.rows(2)})
        return torch.rand(2)

    plan = tiny.plan(tiny.schedule(ONE, 2), ((0, 3),))
    (ours,) = tiny.train(plan, tiny.mlp, work)
    torch.manual_seed(3)
    assert torch.equal(ours, torch.rand(2))


def test_bfloat16_activations_with_parameters_in_float32(tiny: Any) -> None:
    plan = tiny.plan(
        split_backward(tiny.schedule(CHAIN, 2)),
        ((0, 2), (2, 3)),
        dtypes={"activations": "bfloat16"},
    )

    def work(trainer: Trainer) -> tuple[dict[str, Tensor], StepResult]:
        found = tiny.gradients_of(trainer)
        trainer.step({"inputs": tiny.rows(4)})
        return found, trainer.evaluate({"inputs": tiny.rows(4)}, outputs=True)

    results = tiny.train(plan, tiny.mlp, work)
    assert {each.dtype for each in results[1][1].outputs.values()} == {torch.bfloat16}
    theirs = tiny.whole(tiny.seeded(tiny.mlp), tiny.rows(4))
    for name, gradient in tiny.merged([found for found, _ in results]).items():
        assert gradient.dtype == torch.float32
        # bfloat16 resolves 2^-8 of numbers up to about 1.
        assert torch.allclose(gradient, theirs[name], atol=0.03)
