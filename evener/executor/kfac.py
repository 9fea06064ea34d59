"""K-FAC whose work is the plan's side work, as ``planner.pipe_fisher`` places it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn

from evener.errors import UsageError
from evener.executor.side_work import SideCall, SideWork
from evener.executor.train import Trainer
from evener.ir.action import Action, Kind
from evener.ir.plan import Plan
from evener.modules.kfac import KfacLinear, KfacOptions
from evener.planner.pipe_fisher import kfac_name


class KfacSideWork:
    """K-FAC for a plan with PipeFisher's cycle.

    layers: indices in the model of those that the plan has work for; all their Linears take part.

    ``TrainOptions(side_work=kfac.side_work)`` and ``Session(on_start=kfac.attach)`` belong
    together.  Inputs and output gradients are saved in the first step of each cycle; the gradients
    of every step are multiplied by the newest inverses, after clipping, before the optimizer.

    Raises UsageError if a stage with such layers is on several workers, if the plan freezes, or if
    it makes several updates between two flushes.
    """

    def __init__(
        self, plan: Plan, layers: Iterable[int], options: KfacOptions | None = None
    ) -> None:
        self._plan = plan
        self._layers = sorted(layers)
        self._options = KfacOptions() if options is None else options
        self._linears: dict[int, list[KfacLinear]] = {}
        wrong = list(_refusals(plan, self._layers))
        if wrong:
            raise UsageError("K-FAC cannot run in the bubbles of this plan", wrong)

    @property
    def side_work(self) -> SideWork:
        """What each name of the plan's side work does."""
        work: dict[str, Callable[[SideCall], None]] = {}
        for layer in self._layers:
            work[kfac_name("covA", layer)] = partial(self._covariances_a, layer)
            work[kfac_name("covB", layer)] = partial(self._covariances_b, layer)
            work[kfac_name("invA", layer)] = partial(self._inverses_a, layer)
            work[kfac_name("invB", layer)] = partial(self._inverses_b, layer)
        return work

    def attach(self, trainer: Trainer) -> None:
        """Watch the Linears of a worker's layers, and stand in front of its optimizers."""
        shared = {
            id(parameter)
            for (_, peer), parameters in trainer.model.reduced.items()
            if peer is not None
            for parameter in parameters
        }
        for stage, module in trainer.model.stages.items():
            order = _order_of_gradients(trainer, stage)
            first = self._plan.partition[stage][0]
            for layer, block in enumerate(module.layers, start=first):
                if layer in self._layers:
                    self._linears[layer] = [
                        self._watch(linear, trainer, order)
                        for linear in block.modules()
                        if isinstance(linear, nn.Linear) and id(linear.weight) not in shared
                    ]
        for stage, optimizer in trainer.optimizers.items():
            optimizer.register_step_pre_hook(partial(self._precondition, stage))

    def _watch(self, linear: nn.Linear, trainer: Trainer, order: list[Action]) -> KfacLinear:
        kfac = KfacLinear(linear, self._options)
        number = count()

        def hook(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
            # Of a forward that is repeated for its backward, the first has no gradients.
            if not torch.is_grad_enabled():
                return
            action = order[next(number) % len(order)]
            if trainer.place_in_cycle == 0:
                key = action.microbatch, action.slice
                kfac.save_inputs(key, inputs[0])
                output.register_hook(partial(kfac.save_gradients, key))

        linear.register_forward_hook(hook)
        return kfac

    def _covariances_a(self, layer: int, call: SideCall) -> None:
        for linear in self._linears[layer]:
            if linear.a is not None:
                linear.a.add_covariance((call.microbatch, call.slice))

    def _covariances_b(self, layer: int, call: SideCall) -> None:
        for linear in self._linears[layer]:
            if linear.b is not None:
                linear.b.add_covariance((call.microbatch, call.slice))

    def _inverses_a(self, layer: int, call: SideCall) -> None:
        for linear in self._linears[layer]:
            linear.refresh_a()

    def _inverses_b(self, layer: int, call: SideCall) -> None:
        for linear in self._linears[layer]:
            linear.refresh_b()

    def _precondition(self, stage: int, *_: object) -> None:
        first, end = self._plan.partition[stage]
        for layer in range(first, end):
            for linear in self._linears.get(layer, ()):
                linear.precondition()


def _order_of_gradients(trainer: Trainer, stage: int) -> list[Action]:
    """The forwards of a stage that run with gradients switched on, in the worker's order."""
    actions = trainer.plan.lowered().workers[trainer.transport.worker]
    repeated = {(a.stage, a.microbatch, a.slice) for a in actions if a.kind is Kind.R}
    return [
        action
        for action in actions
        if action.stage == stage
        and (
            action.kind is Kind.R
            or (
                action.kind is Kind.F
                and (action.stage, action.microbatch, action.slice) not in repeated
            )
        )
    ]


def _refusals(plan: Plan, layers: Sequence[int]) -> Iterator[str]:
    groups = plan.lowered().workers_of_stage
    for stage, (first, end) in enumerate(plan.partition):
        if len(groups[stage]) > 1 and any(first <= layer < end for layer in layers):
            yield _several_holders(stage, groups[stage])
    if plan.freezing is not None:
        yield "it freezes, so some gradients would have no covariance; plan a job without freeze"
    if plan.schedule.updates.number > 1:
        yield _several_updates(plan.schedule.updates.number)


def _several_updates(number: int) -> str:
    return (
        f"it makes {number} updates between two flushes, but a refresh belongs to one; plan a "
        "schedule that flushes after each"
    )


def _several_holders(stage: int, workers: tuple[int, ...]) -> str:
    return (
        f"stage {stage} is on workers {', '.join(map(str, workers))}, which would have to sum "
        "their covariances; plan with one worker per stage and one replica"
    )
