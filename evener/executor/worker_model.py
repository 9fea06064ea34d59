"""The part of a model that one worker holds, sorted by what happens to its parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from evener.executor.parameters import Described, ParameterNames, Partition
from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.modules.backward_split import Way, split_backward
from evener.modules.head_part import HeadNorm, HeadPart, head_of
from evener.modules.layers import LayerSource
from evener.modules.optimizer import OptimizerFactory
from evener.modules.sliceable import require_sliceable
from evener.modules.stage import Stage
from evener.spec.head_rows import rows_of


@dataclass(frozen=True)
class WorkerModel:
    """Stages of a worker and their trainable parameters by global name.

    parameters: all of them, each once. stepped: per stage, those that its STEP updates; one that
    two stages of this worker share belongs to the first. reduced: what a REDUCE sums, by its stage
    and peer (None for the stage's own parameters, which tied ones are not among). rest: frozen
    parameters and buffers by global name.
    """

    stages: Mapping[int, Stage]
    parameters: Mapping[str, nn.Parameter]
    stepped: Mapping[int, Mapping[str, nn.Parameter]]
    reduced: Mapping[tuple[int, int | None], list[nn.Parameter]]
    rest: Mapping[str, Tensor] = field(default_factory=dict)

    def describe(self) -> dict[str, Described]:
        """What the other workers must know; see ``parameters.owners``."""
        held = {**self.parameters, **self.rest}
        return {name: Described.of(tensor) for name, tensor in held.items()}

    def make_optimizers(self, factory: OptimizerFactory) -> dict[int, Optimizer]:
        """One optimizer per stage that has something to update."""
        return {
            stage: factory(list(stepped.values()))
            for stage, stepped in self.stepped.items()
            if stepped
        }


def build_worker_model(
    schedule: Schedule,
    worker: int,
    *,
    source: LayerSource,
    partition: Partition,
    names: ParameterNames,
    device: torch.device,
    autocast: torch.dtype | None = None,
    split: Way | None = None,
) -> WorkerModel:
    """Build the stages that ``schedule`` gives to ``worker``; only their layers are made.

    Stages behind those of ``partition`` are those of a spread head (``ir.passes.spread_head``).

    Raises UsageError if the schedule has slices and one of these layers cannot be sliced, or if the
    head is to be spread and cannot be.
    """
    own = schedule.stages_of_worker[worker]
    split_stages = {action.stage for action in schedule.workers[worker] if action.kind is Kind.I}
    layers_of = _layers_of_stages(schedule, own, source, partition)
    places = [place for layers in layers_of.values() for place in layers.items()]
    if schedule.num_slices > 1:
        require_sliceable({source.names[layer]: module for layer, module in places})
    for _, module in places:
        module.to(device)
    tied = {name for shared in names.tied for name in shared.names}
    stages, stepped = {}, {}
    reduced: dict[tuple[int, int | None], list[nn.Parameter]] = {}
    parameters: dict[str, nn.Parameter] = {}
    rest: dict[str, Tensor] = {}
    for stage, layers in layers_of.items():
        way = None
        if stage in split_stages:
            way = split_backward(nn.ModuleList(layers.values()), split)
        stages[stage] = Stage(layers, split=way, autocast=autocast)
        found = names.of_layers(layers)
        reduced[stage, None] = [each for name, each in found.items() if name not in tied]
        stepped[stage] = {name: each for name, each in found.items() if name not in parameters}
        parameters.update(found)
        rest.update(names.rest_of_layers(layers))
    for shared in names.tied:
        reduced[shared.pair] = [parameters[name] for name in shared.names if name in parameters]
    return WorkerModel(stages, parameters, stepped, reduced, rest)


def _layers_of_stages(
    schedule: Schedule, own: Sequence[int], source: LayerSource, partition: Partition
) -> dict[int, dict[int, nn.Module]]:
    """Per stage of a worker, its layers by index."""
    num_parts = schedule.num_stages - len(partition) - 1
    if num_parts < 0:
        modules = source.build(layer for stage in own for layer in range(*partition[stage]))
        return {stage: {each: modules[each] for each in range(*partition[stage])} for stage in own}
    chain = [stage for stage in own if stage < len(partition)]
    last = len(source.names) - 1
    modules = source.build(
        [last, *(layer for stage in chain for layer in range(*partition[stage]))]
    )
    head = head_of(source.names[last], modules[last])
    modules[last] = HeadNorm(head)
    found = {stage: {each: modules[each] for each in range(*partition[stage])} for stage in chain}
    rows = rows_of(head.projection.out_features, num_parts)
    for stage in own[len(chain) :]:
        part = stage - len(partition)
        found[stage] = {} if part == num_parts else {last: HeadPart(head, rows[part])}
    return found
