"""The real model of a plan as an engine for ``emulate(clock="measured")``."""

from collections.abc import Hashable

import torch
from torch import Tensor

from evener.errors import UsageError
from evener.executor.batch import cut
from evener.executor.emulate import MakeEngine
from evener.executor.engine import Engine
from evener.executor.torch_engine import StepState, TorchEngine, UpdateState
from evener.executor.train import TrainOptions, add_versions, build_engine, freezing_engine
from evener.executor.transport import Handle, Transport
from evener.ir.action import Action
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.modules.keyed_rng import KeyedGenerators
from evener.modules.stage import Draw
from evener.spec.model import ModelSpec


def model_engine(plan: Plan, model: ModelSpec) -> MakeEngine:
    """Engines that train the plan's model on random tokens.

    Raises UsageError if the model has no vocabulary or the plan has side work, and PlanError if the
    plan is for another model.
    """
    plan.require_model(model)
    TrainOptions().require_side_work(plan)
    if model.vocabulary_size is None:
        raise UsageError(f"model {model.name} cannot be emulated", [_NO_VOCABULARY])

    def make(schedule: Schedule, transport: Transport) -> ModelEngine:
        return ModelEngine(plan, model, schedule, transport)

    return make


class ModelEngine:
    """A ``TorchEngine`` that feeds itself; see ``emulate.EmulatedEngine``.

    freezing_engine: if the plan freezes, what freezes its shares in each step; after ``begin_step``
        it may be told others.
    """

    def __init__(
        self, plan: Plan, model: ModelSpec, schedule: Schedule, transport: Transport
    ) -> None:
        options = TrainOptions()
        self._engine: TorchEngine = build_engine(plan, model, transport, options)
        self.freezing_engine = (
            None if plan.freezing is None else freezing_engine(plan, self._engine)
        )
        self._versions = add_versions(plan, self._engine, transport, options)
        self._runner: Engine = self._versions or self.freezing_engine or self._engine
        self._plan = plan
        self._loss = options.loss
        self._schedule = schedule
        self._vocabulary_size = model.vocabulary_size or 0
        self._generators = KeyedGenerators(options.device)
        self._step = 0

    def begin_step(self) -> None:
        tokens_BL = torch.randint(
            self._vocabulary_size,
            (
                self._schedule.num_microbatches * self._plan.microbatch_size,
                self._plan.sequence_length + 1,
            ),
            generator=torch.Generator().manual_seed(self._step),
        )
        batch = {"inputs": tokens_BL[:, :-1], "targets": tokens_BL[:, 1:]}
        microbatches = cut(batch, self._schedule.num_microbatches)
        number = self._schedule.updates.number
        count = sum(map(self._loss.count, microbatches)) // number
        draw = Draw(self._plan.job.seed, self._step, self._generators)
        state = StepState(microbatches, [UpdateState(count, 1 / count, draw)] * number)
        (self._versions or self._engine).begin_step(state)
        if self.freezing_engine is not None:
            self.freezing_engine.freeze(self._plan.freezing, step=self._step)
        self._step += 1

    def end_step(self) -> None:
        (self._versions or self._engine).end_step()

    def signature(self, microbatch: int) -> Hashable:
        return self._engine.signature(microbatch)

    def run(self, action: Action) -> None:
        self._runner.run(action)

    def payload(self, action: Action) -> tuple[Tensor, ...]:
        return self._engine.payload(action)

    def accept(self, action: Action, tensors: tuple[Tensor, ...]) -> None:
        self._engine.accept(action, tensors)

    def collective(self, action: Action, transport: Transport, members: tuple[int, ...]) -> Handle:
        return self._runner.collective(action, transport, members)

    def copy(self, action: Action) -> Handle:
        return self._engine.copy(action)


_NO_VOCABULARY = "it has no vocabulary_size to draw tokens from; give one, or use --clock wall"
