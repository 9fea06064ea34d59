"""One stage on one worker: its layers as a function, and its forward and backward passes."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from evener.modules.backward_split import BackwardSplit, Deferred
from evener.modules.keyed_rng import KeyedGenerators, key
from evener.modules.memory_owner import enter, make_private, without_gradient
from evener.modules.values import Microbatch, Skeleton, Value, flatten, is_differentiable, unflatten


@dataclass(frozen=True)
class Draw:
    """Which random numbers a forward draws, but for layer and microbatch."""

    seed: int
    step: int
    generators: KeyedGenerators


@dataclass
class Pass:
    """A forward that has run and whose backward has not.

    inputs: leaves whose gradients go to the stage before.
    roots: where the backward starts: gradient edges, so that outputs can be freed once sent, or
        tensors if the split needs them. gradient_of: per root, its index among the gradients that
        are received; None for the loss.
    """

    inputs: list[Tensor]
    roots: list[Tensor] | list[GradientEdge]
    gradient_of: list[int | None] = field(default_factory=list)

    def gradients(self, received: Sequence[Tensor]) -> list[Tensor | None]:
        return [None if index is None else received[index] for index in self.gradient_of]

    def input_gradients(self) -> list[Tensor]:
        """One gradient per input; zeros where the output does not depend on it."""
        gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in self.inputs]
        for x in self.inputs:
            x.grad = None
        return gradients


class Stage(nn.Module):
    """The layers of a stage.

    layers: by global index. needs_split: whether the schedule splits its backward.
    autocast: the type to compute in, None for that of the parameters.
    """

    def __init__(
        self,
        layers: Mapping[int, nn.Module],
        *,
        split: BackwardSplit | None,
        autocast: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers.values())
        self.indices = tuple(layers)
        self._extras = tuple(_extra_inputs(layer) for layer in layers.values())
        self._split = split
        self._parameters_once = tuple(self.layers.parameters())
        self._autocast = autocast

    def forward(self, value: Value, microbatch: Microbatch, draw: Draw | None, index: int) -> Value:
        """Layer by layer; ``index`` is the microbatch's. draw: None if nothing is random."""
        for layer_index, layer, extras in zip(self.indices, self.layers, self._extras, strict=True):
            if draw is not None:
                draw.generators.seed(key(draw.seed, draw.step, layer_index, index))
            if extras:
                named = {name: microbatch[name] for name in extras if name in microbatch}
                value = layer(value, **named)
            else:
                value = layer(value)
        return value

    def computing(self, device: torch.device) -> Any:
        """The context in which forwards run."""
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(device.type, self._autocast)

    def begin_pass(self, inputs: list[Tensor], outputs: Iterable[Tensor], is_loss: bool) -> Pass:
        """Remember what the backward needs; outputs that need no gradient are left out."""
        differentiable = [tensor for tensor in outputs if is_differentiable(tensor)]
        chosen = [i for i, tensor in enumerate(differentiable) if tensor.requires_grad]
        roots: Any = [differentiable[i] for i in chosen]
        if self._split is None or not self._split.needs_outputs:
            roots = [get_gradient_edge(root) for root in roots]
        return Pass(inputs, roots, [None if is_loss else i for i in chosen])

    def lead_to(self, cell: Pass, tensors: Sequence[Tensor]) -> None:
        """Start the backward at ``tensors`` too; the last gradients received are theirs."""
        roots: Any = tensors
        if self._split is None or not self._split.needs_outputs:
            roots = map(get_gradient_edge, tensors)
        cell.roots.extend(roots)
        cell.gradient_of.extend(range(-len(tensors), 0))

    def backward(self, cell: Pass, received: Sequence[Tensor]) -> None:
        """The whole backward: gradients are in ``.grad`` of inputs and parameters."""
        if not cell.roots:
            return
        new = without_gradient(self._parameters_once)
        torch.autograd.backward(cell.roots, cell.gradients(received))
        make_private(new, [*received, *(x.grad for x in cell.inputs)])

    def input_backward(self, cell: Pass, received: Sequence[Tensor]) -> Deferred | None:
        """The backward up to what can wait, which is returned."""
        assert self._split is not None, "the schedule has no I for this stage"
        if not cell.roots:
            return None
        return self._split.input_backward(cell.roots, cell.gradients(received), cell.inputs)

    def detach(self) -> None:
        """Leave the layers as they were found; the stage cannot be used any more."""
        if self._split is not None:
            self._split.detach()


def as_leaves(
    skeleton: Skeleton, tensors: list[Tensor], learns: bool
) -> tuple[Value, list[Tensor]]:
    """A received value as layers may take it, and leaves for what of it needs a gradient.

    Layers may change the value in place; ``tensors`` are then changed too.
    """
    fresh = [tensor.detach() for tensor in tensors]
    leaves = []
    for index, tensor in enumerate(fresh):
        if learns and is_differentiable(tensor):
            leaves.append(tensor.requires_grad_())
            fresh[index] = enter(tensor)
    return unflatten(skeleton, iter(fresh)), leaves


def detached(value: Value) -> tuple[Skeleton, list[Tensor]]:
    """A value taken apart and cut off from its graph."""
    skeleton, tensors = flatten(value)
    return skeleton, [tensor.detach() for tensor in tensors]


def _extra_inputs(layer: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of a layer's forward after the first: taken from the batch."""
    forward = getattr(layer, "_orig_mod", layer).forward  # compiled modules hide theirs
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(parameter.name for parameter in parameters if parameter.kind in named)
