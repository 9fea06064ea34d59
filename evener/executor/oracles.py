"""What training gives in a single process, in plain PyTorch: ``verify`` compares with it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import signature
from math import inf
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from evener.ir.action import Action, Kind
from evener.ir.plan import Plan
from evener.ir.versions import versions_read
from evener.modules.freezing import draw_frozen
from evener.modules.keyed_rng import key
from evener.modules.optimizer import optimizer_factory
from evener.modules.reference import build_layers, layer_name
from evener.spec.model import ModelSpec


@dataclass
class Trace:
    """What a training leaves: per step loss, gradients and norm, and the parameters at its end."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    grad_norms: list[float | None] = field(default_factory=list)
    parameters: dict[str, Tensor] = field(default_factory=dict)


_PART = re.compile(r"(.*)\[(\d+):(\d+)\]")

Batches: TypeAlias = Sequence[Sequence[Mapping[str, Tensor]]]
"""Per step, its microbatches."""


def train_alone(model: ModelSpec, plan: Plan, batches: Batches) -> Trace:
    """The training loop of a single process, with the weights and freezing of a plan.

    Of a plan that makes one update between two flushes it is the plain loop.  Otherwise every
    stage is given, before the forward of each microbatch and before its backward, the version of
    its weights that the schedule has it read.
    """
    job, trace = plan.job, Trace()
    layers = build_layers(model, dtype=torch.float64, seed=job.seed)
    # A tied matrix has the name of its first place: the same tensor does not come twice.
    modules = {layer_name(index)[len("layers.") :]: m for index, m in layers.items()}
    parameters = {f"layers.{n}": each for n, each in nn.ModuleDict(modules).named_parameters()}
    optimizer = optimizer_factory(job.optimizer)(list(parameters.values()))
    stale = None if plan.schedule.updates.number == 1 else _StaleStages(plan, layers)
    for step, microbatches in enumerate(batches):
        count = sum(int((each["targets"] != -100).sum()) for each in microbatches)
        total = 0.0
        for index, microbatch in enumerate(microbatches):
            if stale is None:
                loss = _loss(plan, layers, microbatch, (step, index))
            else:
                stale.load(Kind.F, step, index)
                loss = _loss(plan, stale.layers, microbatch, (step, index))
                stale.load(Kind.B, step, index)
            if loss.requires_grad:
                (loss / count).backward()
            total += loss.item()
        if stale is not None:
            stale.hand_over_gradients()
        trace.losses.append(total / count)
        trace.gradients.append(copies(parameters))
        norm = nn.utils.clip_grad_norm_(parameters.values(), job.clip_norm or inf)
        trace.grad_norms.append(None if job.clip_norm is None else float(norm))
        optimizer.step()
        optimizer.zero_grad()
        if stale is not None:
            stale.note_update(step)
    trace.parameters = {name: each.detach().clone() for name, each in parameters.items()}
    return trace


def in_parts(trace: Trace, names: Iterable[str]) -> Trace:
    """The trace with what has parts among ``names`` in these: ``weight[0:8]`` is rows 0 to 7."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for whole, first, end in (found.groups() for found in map(_PART.fullmatch, names) if found):
        rows.setdefault(whole, []).append((int(first), int(end)))

    def cut(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = dict(tensors)
        for whole, own in rows.items():
            if whole in found:
                tensor = found.pop(whole)
                assert sum(end - first for first, end in own) == len(tensor), f"{whole}: {own}"
                found |= {f"{whole}[{first}:{end}]": tensor[first:end] for first, end in own}
        return found

    gradients = list(map(cut, trace.gradients))
    return replace(trace, gradients=gradients, parameters=cut(trace.parameters))


def copies(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The gradients that there are, by name."""
    return {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}


def _loss(
    plan: Plan,
    layers: Mapping[int, nn.Module],
    microbatch: Mapping[str, Tensor],
    place: tuple[int, int],
) -> Tensor:
    """Summed over the tokens that count. place: step and index of the microbatch."""
    step, index = place
    x = microbatch["inputs"]
    left_out = _left_out(plan, layers, step, index)
    for layer_index, layer in layers.items():
        torch.manual_seed(key(plan.job.seed, step, layer_index, index))
        takes_documents = "documents" in signature(layer.forward).parameters
        documents = (microbatch.get("documents"),) if takes_documents else ()
        x = functional_call(layer, left_out[layer_index], (x, *documents))
    logits, targets = x.flatten(0, 1), microbatch["targets"].flatten()
    return functional.cross_entropy(logits, targets, reduction="sum")


def _left_out(
    plan: Plan, layers: Mapping[int, nn.Module], step: int, microbatch: int
) -> dict[int, dict[str, Tensor]]:
    """Per layer, the frozen parameters of a microbatch as tensors that nothing flows back to."""
    found: dict[int, dict[str, Tensor]] = {index: {} for index in layers}
    if plan.freezing is None:
        return found
    for stage, (first, end) in enumerate(plan.partition):
        own = nn.ModuleList(layers[index] for index in range(first, end))
        frozen = draw_frozen(
            list(own.parameters()),
            plan.freezing.of(stage, microbatch),
            seed=plan.job.seed,
            step=step,
            stage=stage,
            microbatch=microbatch,
        )
        detached = {id(parameter): parameter.detach() for parameter in frozen}
        for index in range(first, end):
            for name, parameter in layers[index].named_parameters():
                if id(parameter) in detached:
                    found[index][name] = detached[id(parameter)]
    return found


class _StaleStages:
    """The stages of an asynchronous plan with weights of their own, tied ones included.

    layers: all of them, by index.
    """

    def __init__(self, plan: Plan, layers: Mapping[int, nn.Module]) -> None:
        self._schedule = plan.schedule
        self._read = versions_read(plan.schedule)
        self._originals = {each for layer in layers.values() for each in layer.parameters()}
        self._versions = [self._now()]
        self.layers: dict[int, nn.Module] = {}
        # Per stage, its own weights and those that they are copies of.
        self._pairs: list[list[tuple[nn.Parameter, nn.Parameter]]] = []
        for span in plan.partition:
            own = nn.ModuleList(layers[index] for index in range(*span))
            copied = deepcopy(own)
            self.layers.update(zip(range(*span), copied, strict=True))
            self._pairs.append(list(zip(copied.parameters(), own.parameters(), strict=True)))

    def load(self, kind: Kind, step: int, index: int) -> None:
        """Give every stage the weights that it reads in a microbatch, forward or backward."""
        updates = self._schedule.updates
        microbatch = step % updates.number * self._schedule.update_size + index
        for stage, pairs in enumerate(self._pairs):
            version = self._versions[self._read[Action(stage, kind, microbatch)]]
            for own, original in pairs:
                # Unseen by autograd, as a backward may be meant to find other weights.
                own.data.copy_(version[original])

    def hand_over_gradients(self) -> None:
        """To the weights that the optimizer knows; those of tied ones are summed."""
        for own, original in (pair for pairs in self._pairs for pair in pairs):
            if own.grad is not None:
                original.grad = own.grad if original.grad is None else original.grad + own.grad
                own.grad = None

    def note_update(self, step: int) -> None:
        """There is a new version; it is the first one where the schedule begins anew."""
        if (step + 1) % self._schedule.updates.number == 0:
            self._versions = []
        self._versions.append(self._now())

    def _now(self) -> dict[nn.Parameter, Tensor]:
        return {each: each.detach().clone() for each in self._originals}
