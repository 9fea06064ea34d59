"""What a worker holds between two steps, and how it gets to those that hold it next."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import Optimizer

from evener.executor.torch_engine import TorchEngine
from evener.executor.transport import Transport
from evener.executor.worker_model import WorkerModel


@dataclass(frozen=True)
class Kept:
    """What besides its tensors belongs to a holding.

    learns: whether it is trained, and so the same on all who have it.
    keys: of the optimizer's tensors. on_cpu: which of these are in host memory wherever the
    parameter is. others: what else the optimizer keeps. options: of the parameter's group.
    """

    learns: bool = False
    keys: tuple[str, ...] = ()
    on_cpu: tuple[bool, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Holding:
    """A parameter or buffer, then what its optimizer keeps of it."""

    tensors: tuple[Tensor, ...]
    kept: Kept = Kept()


Holdings: TypeAlias = Mapping[str, Holding]
"""By global name."""


@dataclass(frozen=True)
class Heritage:
    """What a trainer leaves to one of another plan.

    model: what the new plan gives to this worker, filled with ``holdings``.
    """

    model: WorkerModel
    holdings: Holdings
    step_index: int
    num_updates: int


def holdings(engine: TorchEngine) -> Holdings:
    """All that a worker would lose, as it is: nothing is copied."""
    model = engine.model
    held = chain(model.parameters.items(), model.rest.items())
    found = {name: Holding((each.detach(),), Kept(each.requires_grad)) for name, each in held}
    for stage, optimizer in engine.optimizers.items():
        options = _options(optimizer)
        for name, parameter in model.stepped[stage].items():
            state = optimizer.state.get(parameter, {})
            keys = tuple(key for key, value in state.items() if isinstance(value, Tensor))
            on_cpu = tuple(state[key].device.type == "cpu" for key in keys)
            others = {key: value for key, value in state.items() if key not in keys}
            kept = Kept(True, keys, on_cpu, others, options[parameter])
            found[name] = Holding((parameter.detach(), *(state[key] for key in keys)), kept)
    return found


def take_over(engine: TorchEngine, held: Holdings) -> None:
    """Let the engine's optimizers go on where others have stopped."""
    for stage, optimizer in engine.optimizers.items():
        options = {}
        for name, parameter in engine.model.stepped[stage].items():
            kept = held[name].kept
            options[parameter] = kept.options
            state = {**kept.others, **dict(zip(kept.keys, held[name].tensors[1:], strict=True))}
            if state:
                optimizer.state[parameter] = state
        for group in optimizer.param_groups:
            group.update(options[group["params"][0]])


@torch.no_grad()
def fill(model: WorkerModel, held: Holdings) -> None:
    """Give a model that was just built the values that were trained."""
    for name, tensor in chain(model.parameters.items(), model.rest.items()):
        tensor.copy_(held[name].tensors[0])


@dataclass(frozen=True)
class Moves:
    """What goes from whom to whom; the same on all workers.

    kept: by name, of the worker that hands it over. of_pair: by (source, target), the names.
    """

    kept: Mapping[str, Kept]
    of_pair: Mapping[tuple[int, int], Sequence[str]]

    @classmethod
    def between(
        cls, held: Sequence[Mapping[str, Kept]], needed: Sequence[Iterable[str]]
    ) -> "Moves":
        """held, needed: by worker. The lowest worker that has something hands it over."""
        owner: dict[str, int] = {}
        for worker, names in enumerate(held):
            for name in names:
                owner.setdefault(name, worker)
        kept = {name: held[worker][name] for name, worker in owner.items()}
        of_pair: dict[tuple[int, int], list[str]] = {}
        for target, wanted in enumerate(needed):
            for name in sorted(wanted):
                has_it = name in held[target] and (kept[name].learns or owner[name] == target)
                if not has_it:
                    of_pair.setdefault((owner[name], target), []).append(name)
        return cls(kept, dict(sorted(of_pair.items())))

    def run(self, held: Holdings, transport: Transport, device: torch.device) -> Holdings:
        """Send what others need, and return what this worker has, with what has come.

        Nobody waits before it has sent everything.
        """
        me, here = transport.worker, dict(held)
        for (source, target), names in self.of_pair.items():
            if source == me:
                for name in names:
                    tensors = tuple(tensor.to(device) for tensor in held[name].tensors)
                    transport.send(target, name, tensors)
        coming = [
            (name, transport.receive(source, name))
            for (source, target), names in self.of_pair.items()
            if target == me
            for name in names
        ]
        for name, handle in coming:
            value, *state = handle.wait()
            kept = self.kept[name]
            state = [
                tensor.cpu() if on_cpu else tensor
                for tensor, on_cpu in zip(state, kept.on_cpu, strict=True)
            ]
            here[name] = Holding((value, *state), kept)
        return here


def _options(optimizer: Optimizer) -> dict[Tensor, dict[str, Any]]:
    """Per parameter, the settings of its group."""
    return {
        parameter: {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
