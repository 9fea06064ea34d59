"""Tiny plans, trained by threads of this process."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from evener.executor.train import Trainer, TrainOptions
from evener.ir.action import Action, Kind
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.modules.values import Value
from evener.spec.job import JobSpec
from evener.testing.memory_transport import run_in_memory

Result = TypeVar("Result")
Layers = Sequence[nn.Module]


class SquareLoss:
    """Squares summed, so that gradients are easy to know; every sample counts."""

    def count(self, microbatch: dict[str, Any]) -> int:
        return int(microbatch["inputs"].shape[0])

    def total(self, output: Value, microbatch: dict[str, Any]) -> Tensor:
        return output.double().square().sum()


class Tiny:
    """Builds plans and runs them; the only thing that tests here need to know."""

    loss = SquareLoss()

    def schedule(self, holders: Sequence[Sequence[int]], num_microbatches: int) -> Schedule:
        """GPipe on any placement: per stage the workers that take its microbatches in turn."""
        num_workers = 1 + max(worker for group in holders for worker in group)
        lists: list[list[Action]] = [[] for _ in range(num_workers)]
        for kind, stages in ((Kind.F, range(len(holders))), (Kind.B, range(len(holders))[::-1])):
            for stage in stages:
                for m in range(num_microbatches):
                    lists[holders[stage][m % len(holders[stage])]].append(Action(stage, kind, m))
        return Schedule("tiny", len(holders), num_microbatches, tuple(map(tuple, lists)))

    def plan(
        self,
        schedule: Schedule,
        partition: Sequence[tuple[int, int]],
        *,
        tied: Sequence[tuple[int, int]] = (),
        slice_tokens: tuple[int, ...] | None = None,
        **job: Any,
    ) -> Plan:
        sequence_length = sum(slice_tokens or (1,))
        if schedule.num_slices == 1:
            slice_tokens = None
        num_layers = partition[-1][1]
        settings = {
            "global_batch_sequences": schedule.num_microbatches,
            "sequence_length": sequence_length,
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            **job,
        }
        return Plan(
            model="tiny",
            model_fingerprint="any",
            layer_names=tuple(f"layer_{index}" for index in range(num_layers)),
            partition=tuple(partition),
            devices=tuple((f"cpu:{worker}",) for worker in range(schedule.num_workers)),
            microbatch_size=1,
            sequence_length=sequence_length,
            slice_tokens=slice_tokens,
            job=JobSpec.model_validate(settings),
            tied=tuple(tied),
            schedule=schedule,
        )

    def train(
        self,
        plan: Plan,
        make_layers: Callable[[], Any],
        work: Callable[[Trainer], Result],
        *,
        seeds: Sequence[int] | None = None,
        **options: Any,
    ) -> list[Result]:
        """What ``work`` returns on each worker. Every worker builds the same layers itself."""
        models = []
        for worker in range(plan.num_workers):
            torch.manual_seed(0 if seeds is None else seeds[worker])
            models.append(make_layers())
        chosen = TrainOptions(**{"loss": self.loss, **options})
        return run_in_memory(
            plan.num_workers,
            lambda transport: work(Trainer(plan, models[transport.worker], transport, chosen)),
        )

    def mlp(self) -> list[nn.Module]:
        return [nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)]

    def rows(self, count: int, width: int = 3) -> Tensor:
        return torch.linspace(-1.0, 1.0, count * width).view(count, width)

    def gradients_of(self, trainer: Trainer) -> dict[str, Tensor]:
        """The gradients of the next step, filled in when it runs."""
        found: dict[str, Tensor] = {}
        trainer.engine.on_gradients = lambda parameters: found.update(
            {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
        )
        return found

    def whole(
        self, layers: Sequence[nn.Module], inputs: Tensor, count: int | None = None
    ) -> dict[str, Tensor]:
        """Gradients of the mean square by a single backward, by global name."""
        model = nn.Sequential(*layers)
        (model(inputs).double().square().sum() / (count or inputs.shape[0])).backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    def seeded(self, make_layers: Callable[[], list[nn.Module]]) -> list[nn.Module]:
        torch.manual_seed(0)
        return make_layers()

    def assert_close(self, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert torch.allclose(value, theirs[name], atol=1e-6), name

    def merged(self, parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """What the workers have; where several have the same, it must be bitwise the same."""
        found: dict[str, Tensor] = {}
        for part in parts:
            for name, value in part.items():
                assert torch.equal(found.setdefault(name, value), value), name
        return found


@pytest.fixture
def tiny() -> Tiny:
    return Tiny()
