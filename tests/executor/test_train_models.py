"""Models of every shape: what stages exchange, lack, hold and let go."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.executor.train import Trainer
from evener.ir.action import Action, Kind
from evener.ir.memory import peak_in_flight
from evener.schedules import ScheduleShape, split_backward, zb_h1

ONE = ((0,),)
CHAIN = ((0,), (1,))
SLOW = {"optimizer": {"kind": "sgd", "learning_rate": 1e-3}}
WIDE = ((0, 1, 1), (2,))


class Fork(nn.Module):
    """Returns a nest of tensors, one of them of integers, and None."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.linear(x)
        return {"halves": (y, y.square()), "signs": [(x > 0).long(), None]}


class Pass(nn.Module):
    def forward(self, nest: dict[str, Any]) -> dict[str, Any]:
        return nest


class Join(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, nest: dict[str, Any]) -> Tensor:
        (plain, squared), (signs, nothing) = nest["halves"], nest["signs"]
        assert nothing is None
        return self.linear(plain * 2 + squared) * signs.sum(-1, keepdim=True)


@pytest.mark.parametrize("holders", [((0,), (1,), (2,)), ((0,), (0,), (0,))])
def test_stages_exchange_nests_of_tensors(tiny: Any, holders: Any) -> None:
    def make() -> list[nn.Module]:
        return [Fork(), Pass(), Join()]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.step({"inputs": tiny.rows(5)})
        return found

    plan = tiny.plan(tiny.schedule(holders, 2), ((0, 1), (1, 2), (2, 3)))
    tiny.assert_close(
        tiny.merged(tiny.train(plan, make, work)), tiny.whole(tiny.seeded(make), tiny.rows(5))
    )


class Sometimes(nn.Module):
    """Uses its parameter and its input only where the batch says so."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, *, used: bool) -> Tensor:
        return self.linear(x) if used else torch.ones_like(x)


@pytest.mark.parametrize("used", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("holders", [CHAIN, ((0, 1), (0, 1))])
def test_gradients_may_be_missing_in_some_microbatches(tiny: Any, used: Any, holders: Any) -> None:
    def make() -> list[nn.Module]:
        return [nn.Linear(3, 4), Sometimes()]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.step([{"inputs": tiny.rows(2), "used": each} for each in used])
        return found

    ours = tiny.merged(
        tiny.train(tiny.plan(tiny.schedule(holders, 2), ((0, 1), (1, 2))), make, work)
    )
    first, second = tiny.seeded(make)
    for each in used:
        loss = second(first(tiny.rows(2)), used=each).square().sum() / 4
        if loss.requires_grad:
            loss.backward()
    for name, parameter in nn.Sequential(first, second).named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(ours[name], parameter.grad, atol=1e-6)
        elif name in ours:  # a stage that was sent zeros has zeros, not None
            assert not ours[name].any()


def test_weight_decay_leaves_unused_parameters_of_replicas_alone(tiny: Any) -> None:
    def make() -> list[nn.Module]:
        return [Sometimes()]

    def work(trainer: Trainer) -> Tensor:
        trainer.step([{"inputs": tiny.rows(2, 4), "used": False}] * 2)
        return trainer.model.parameters["0.linear.weight"].detach()

    plan = tiny.plan(
        tiny.schedule(((0, 1),), 2), ((0, 1),), optimizer={"kind": "adamw", "weight_decay": 0.5}
    )
    for weight in tiny.train(plan, make, work):
        assert torch.equal(weight, tiny.seeded(make)[0].linear.weight)


def test_frozen_and_parameterless_stages(tiny: Any) -> None:
    def make() -> list[nn.Module]:
        return [nn.Linear(3, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 2), nn.Identity()]

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.step({"inputs": tiny.rows(4)})
        return found

    for schedule in (
        tiny.schedule(((0,), (1,), (2,), (3,)), 2),
        split_backward(tiny.schedule(((0,), (1,), (0,), (1,)), 2)),
    ):
        plan = tiny.plan(schedule, ((0, 1), (1, 2), (2, 3), (3, 4)), clip_norm=100.0)
        ours = tiny.merged(tiny.train(plan, make, work))
        tiny.assert_close(ours, tiny.whole(tiny.seeded(make), tiny.rows(4)))


def test_a_model_without_anything_to_learn_still_runs(tiny: Any) -> None:
    plan = tiny.plan(tiny.schedule(CHAIN, 2), ((0, 1), (1, 2)), clip_norm=1.0)
    results = tiny.train(
        plan, lambda: [nn.Tanh(), nn.Tanh()], lambda trainer: trainer.step({"inputs": tiny.rows(4)})
    )
    assert [result.grad_norm for result in results] == [0.0, 0.0]


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor, scale: Tensor) -> Tensor:
        return self.linear(x) * mask * scale


def test_layers_are_given_what_their_forward_names(tiny: Any) -> None:
    def make() -> list[nn.Module]:
        return [nn.Linear(3, 4), Masked()]

    mask, scale = tiny.rows(5, 4), torch.full((1, 4), 3.0)  # a row per sample; one row for all

    def work(trainer: Trainer) -> dict[str, Tensor]:
        found = tiny.gradients_of(trainer)
        trainer.step(
            {"inputs": tiny.rows(5), "mask": mask, "scale": scale, "unused": torch.zeros(5)}
        )
        return found

    plan = tiny.plan(tiny.schedule(CHAIN, 2), ((0, 1), (1, 2)))
    first, second = tiny.seeded(make)
    (second(first(tiny.rows(5)), mask, scale).square().sum() / 5).backward()
    theirs = {n: p.grad for n, p in nn.Sequential(first, second).named_parameters()}
    tiny.assert_close(tiny.merged(tiny.train(plan, make, work)), theirs)


def test_buffers_see_every_microbatch_once(tiny: Any) -> None:
    def make() -> list[nn.Module]:
        return [nn.Linear(3, 4), nn.BatchNorm1d(4)]

    def work(trainer: Trainer) -> int | None:
        trainer.step({"inputs": tiny.rows(8)})
        trainer.evaluate({"inputs": tiny.rows(8)})
        stage = trainer.model.stages.get(1)
        return None if stage is None else int(stage.layers[0].num_batches_tracked)

    plan = tiny.plan(tiny.schedule(CHAIN, 4), ((0, 1), (1, 2)))
    assert tiny.train(plan, make, work) == [None, 4]


def test_hooks_fire_as_often_as_microbatches(tiny: Any) -> None:
    fired: list[str] = []

    class Hooked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.register_hook(lambda gradient: fired.append("x"))
            return x * 2

    def work(trainer: Trainer) -> list[int]:
        counts = []
        for _ in range(3):
            fired.clear()
            trainer.step({"inputs": tiny.rows(4)})
            counts.append(len(fired))
        return counts

    plan = tiny.plan(tiny.schedule(((0,), (0,)), 4), ((0, 1), (1, 2)))
    assert tiny.train(plan, lambda: [nn.Linear(3, 4), Hooked()], work) == [[4, 4, 4]]


def test_the_forwards_in_flight_are_those_of_the_schedule(tiny: Any) -> None:
    schedule = zb_h1(ScheduleShape(3, 6))
    plan = tiny.plan(schedule, ((0, 1), (1, 2), (2, 3)))
    most = [0, 0, 0]

    def work(trainer: Trainer) -> None:
        run = trainer.engine.run

        def counted(action: Action) -> None:
            if action.kind in (Kind.B, Kind.W, Kind.I):
                worker = trainer.transport.worker
                most[worker] = max(most[worker], trainer.engine.num_in_flight)
            run(action)

        trainer.engine.run = counted  # type: ignore[method-assign]
        trainer.step({"inputs": tiny.rows(6)})

    tiny.train(plan, tiny.mlp, work)
    assert tuple(most) == peak_in_flight(schedule)


@pytest.mark.usefixtures("quick_gc")
def test_a_sent_output_is_freed_although_its_backward_is_to_come(tiny: Any) -> None:
    alive: list[weakref.ref[Tensor]] = []

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2 + 1  # an addition keeps neither operand nor result
            alive.append(weakref.ref(y))
            return y

    def work(trainer: Trainer) -> int:
        backward = trainer.model.stages[0].backward
        counts = []

        def watched(*arguments: Any) -> None:
            gc.collect()
            counts.append(sum(each() is not None for each in alive))
            backward(*arguments)

        trainer.model.stages[0].backward = watched  # type: ignore[method-assign]
        trainer.step({"inputs": tiny.rows(4)})
        return max(counts)

    schedule = tiny.schedule(((0,), (0,)), 4)
    plan = tiny.plan(schedule, ((0, 2), (2, 3)))
    assert tiny.train(plan, lambda: [nn.Linear(3, 3), Watched(), nn.Linear(3, 2)], work) == [0]


@pytest.mark.usefixtures("quick_gc")
def test_a_step_leaves_no_activations(tiny: Any) -> None:
    def work(trainer: Trainer) -> list[int]:
        counts = []
        for _ in range(4):
            trainer.step({"inputs": tiny.rows(4)})
            gc.collect()
            counts.append(sum(issubclass(type(each), Tensor) for each in gc.get_objects()))
        return counts

    plan = tiny.plan(split_backward(tiny.schedule(((0,), (0,)), 4)), ((0, 2), (2, 3)))
    ((_, second, third, fourth),) = tiny.train(plan, tiny.mlp, work)
    assert second == third == fourth
