"""Runs of several updates, by threads of this process, against the formulas of their papers."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.errors import UsageError
from evener.executor.train import StepResult, Trainer
from evener.ir.plan import Plan
from evener.schedules import SCHEDULES, ScheduleShape

RATE = 0.1
PARTITION = ((0, 2), (2, 3))


def make_plan(tiny: Any, name: str, *, size: int, updates: int) -> Plan:
    schedule = SCHEDULES[name](ScheduleShape(2, size, num_updates=updates))
    return tiny.plan(
        schedule,
        PARTITION,
        global_batch_sequences=size,
        optimizer={"kind": "sgd", "learning_rate": RATE},
        asynchronous=True,
    )


def batches(tiny: Any, number: int) -> list[dict[str, Tensor]]:
    return [{"inputs": tiny.rows(8) * (1 + 0.2 * index) - 0.1 * index} for index in range(number)]


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in trainer.model.parameters.items()}


def updated(
    tiny: Any, latest: dict[str, Tensor], read: dict[str, Tensor], batch: dict[str, Tensor]
) -> dict[str, Tensor]:
    """One step of plain SGD from the latest weights with the gradient at others."""
    model = nn.Sequential(*tiny.seeded(tiny.mlp))
    model.load_state_dict(read)
    gradients = tiny.whole(list(model), batch["inputs"])
    return {name: each - RATE * gradients[name] for name, each in latest.items()}


def by_formula(tiny: Any, data: Sequence[dict[str, Tensor]], flushes: Sequence[int]) -> Any:
    """W(t+1) = W(t) - lr grad f(W(t-1)), where what a flush leaves is W(t) and W(t-1) at once."""
    now = {name: p.detach() for name, p in nn.Sequential(*tiny.seeded(tiny.mlp)).named_parameters()}
    before = now
    for step, batch in enumerate(data):
        if step in flushes:
            before = now
        before, now = now, updated(tiny, now, before, batch)
    return now


def test_2bw_follows_its_formula_over_a_flush(tiny: Any) -> None:
    plan, data = make_plan(tiny, "pipedream_2bw", size=4, updates=3), batches(tiny, 5)

    def work(trainer: Trainer) -> dict[str, Tensor]:
        trainer.steps(data[:3])
        trainer.steps(data[3:])  # less than a whole run
        return weights(trainer)

    ours = tiny.merged(tiny.train(plan, tiny.mlp, work))
    tiny.assert_close(ours, by_formula(tiny, data, flushes=(0, 3)))
    # The test would see a delay that is not there, or one too many.
    for flushes in (range(5), (0,)):
        theirs = by_formula(tiny, data, flushes=flushes)
        assert not all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)


@pytest.mark.parametrize("name", ["pipedream_2bw", "amdp_2"])
def test_one_update_per_flush_is_ordinary_training(tiny: Any, name: str) -> None:
    plan, data = make_plan(tiny, name, size=4, updates=3), batches(tiny, 3)

    def work(trainer: Trainer) -> tuple[dict[str, Tensor], list[StepResult]]:
        return weights(trainer), [trainer.step(batch) for batch in data]

    def only_weights(trainer: Trainer) -> dict[str, Tensor]:
        for batch in data:
            trainer.step(batch)
        return weights(trainer)

    ours = tiny.merged(tiny.train(plan, tiny.mlp, only_weights))
    tiny.assert_close(ours, by_formula(tiny, data, flushes=range(3)))
    for before, results in tiny.train(plan, tiny.mlp, work):
        model = nn.Sequential(*tiny.seeded(tiny.mlp))
        for key, value in before.items():
            assert torch.equal(value, model.state_dict()[key])
        assert [result.count for result in results] == [8, 8, 8]


@pytest.mark.parametrize("name", ["pipedream_2bw", "amdp_2"])
def test_no_microbatch_is_staler_than_the_bound(tiny: Any, name: str) -> None:
    plan, data = make_plan(tiny, name, size=4, updates=4), batches(tiny, 4)

    def work(trainer: Trainer) -> set[int]:
        trainer.steps(data)
        assert trainer.versions is not None
        return {
            trainer.schedule.update_of(action) - version
            for action, version in trainer.versions.read.items()
        }

    assert tiny.train(plan, tiny.mlp, work) == [{0, 1}, {0, 1}]


def test_amdp_keeps_one_optimizer_and_the_others_are_sent_its_weights(tiny: Any) -> None:
    plan, data = make_plan(tiny, "amdp_2", size=4, updates=3), batches(tiny, 3)

    def work(trainer: Trainer) -> tuple[list[int], dict[str, Tensor]]:
        trainer.steps(data)
        return list(trainer.optimizers), weights(trainer)

    results = tiny.train(plan, tiny.mlp, work)
    assert [optimizers for optimizers, _ in results] == [[0, 1], []]
    # Both hold both stages, and what they hold is the same to the last bit.
    assert len(tiny.merged([held for _, held in results])) == 4


def test_each_update_has_its_own_result(tiny: Any) -> None:
    plan, data = make_plan(tiny, "pipedream_2bw", size=4, updates=3), batches(tiny, 2)

    def work(trainer: Trainer) -> tuple[StepResult, ...]:
        return trainer.steps(data, timeline=True)

    for first, second in tiny.train(plan, tiny.mlp, work):
        model = nn.Sequential(*tiny.seeded(tiny.mlp))
        # Both read what training began with.
        for result, batch in ((first, data[0]), (second, data[1])):
            expected = model(batch["inputs"]).square().sum() / 8
            assert result.loss == pytest.approx(expected.item(), rel=1e-6)
            assert len(result.microbatch_losses) == 4
        assert first.timeline is second.timeline
        assert first.timeline is not None
        assert first.timeline.schedule.updates.number == 2
        assert first.timeline.update_ns == -(-first.timeline.step_ns // 2)


def test_evaluation_and_accumulation_between_runs_use_the_latest_weights(tiny: Any) -> None:
    plan, data = make_plan(tiny, "pipedream_2bw", size=4, updates=2), batches(tiny, 4)

    def work(trainer: Trainer) -> tuple[dict[str, Tensor], float, dict[str, Tensor]]:
        trainer.steps(data[:2])
        after, loss = weights(trainer), trainer.evaluate(data[3]).loss
        trainer.accumulate(data[2], count=16)
        trainer.step(data[3], count=16)
        return after, loss, weights(trainer)

    results = tiny.train(plan, tiny.mlp, work)
    now = tiny.merged([after for after, _, _ in results])
    model = nn.Sequential(*tiny.seeded(tiny.mlp))
    model.load_state_dict(now)
    both = {"inputs": torch.cat([data[2]["inputs"], data[3]["inputs"]])}
    for _, loss, _ in results:
        assert loss == pytest.approx((model(data[3]["inputs"]).square().sum() / 8).item(), rel=1e-6)
    tiny.assert_close(tiny.merged([end for *_, end in results]), updated(tiny, now, now, both))


def test_more_batches_than_updates_are_refused(tiny: Any) -> None:
    plan = make_plan(tiny, "pipedream_2bw", size=4, updates=2)
    with pytest.raises(UsageError) as caught:
        tiny.train(plan, tiny.mlp, lambda trainer: trainer.steps(batches(tiny, 3)))
    assert str(caught.value) == (
        "3 batches are given for 2 updates: a run of schedule pipedream_2bw makes 1 to 2, each "
        "with its own batch; give as many"
    )
