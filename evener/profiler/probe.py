"""One kind of layer at one microbatch size, and each of its actions by itself.

What runs is what the executor runs: the same stage, of one layer, and the same backward split.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from evener.modules.backward_split import Deferred, Way, split_backward
from evener.modules.loss import Loss
from evener.modules.stage import Draw, Pass, Stage, as_leaves
from evener.modules.values import Microbatch, Value, flatten, is_differentiable
from evener.profiler.memory import SavedTensors


class Subject:
    """The layer that stands for all of its kind.

    kind: its name. index: its position in the model. loss: None but for the model's last layer.
    plain, split: the layer as a stage whose backward is whole, and as one whose backward is split;
    both have the same parameters.
    """

    def __init__(
        self,
        kind: str,
        index: int,
        module: nn.Module,
        *,
        loss: Loss | None = None,
        autocast: torch.dtype | None = None,
        way: Way | None = None,
    ) -> None:
        self.kind = kind
        self.index = index
        self.loss = loss
        self.module = module.train()
        shared = {id(t): t for t in chain(module.parameters(), module.buffers())}
        twin = copy.deepcopy(module, shared)
        self.plain = Stage({index: module}, split=None, autocast=autocast)
        self.split = Stage({index: twin}, split=split_backward(twin, way), autocast=autocast)

    @property
    def num_parameters(self) -> int:
        """How many numbers its parameters have."""
        return sum(parameter.numel() for parameter in self.module.parameters())


@dataclass(frozen=True)
class Arrival:
    """What enters a layer, and the microbatch that it comes from.

    num_sequences: of the microbatch. scale: what a loss is multiplied by; the gradients inside a
    model are of that size too.
    """

    value: Value
    microbatch: Microbatch
    num_sequences: int
    scale: float


class Probe:
    """A subject and what enters it. Each action runs once when it is made.

    sizes: bytes that the actions keep and exchange, by their names in ``LayerCost``.
    """

    def __init__(
        self, subject: Subject, arrival: Arrival, *, device: torch.device, draw: Draw
    ) -> None:
        self.subject = subject
        self.arrival = arrival
        self._arrived = flatten(arrival.value)
        self._device = device
        self._draw = draw
        outputs = flatten(self.forward_alone())[1]
        self._output_gradients = [
            torch.randn_like(output) * arrival.scale
            for output in outputs
            if is_differentiable(output)
        ]
        self.sizes: Mapping[str, int] = {
            "input_bytes": _num_bytes(self._arrived[1]),
            "output_bytes": _num_bytes(outputs),
            **self._kept_bytes(),
        }

    def _kept_bytes(self) -> dict[str, int]:
        with SavedTensors(self.subject.module) as saved:
            forward = self.forward(split=False)
            activation_bytes = saved.num_bytes
        self.backward(forward)
        with SavedTensors(self.subject.module) as saved:
            deferred = self.input_backward(self.forward(split=True))
            kept_bytes = 0 if deferred is None else deferred.num_bytes + saved.num_bytes
        self.weight_backward(deferred)
        return {"activation_bytes": activation_bytes, "weight_gradient_bytes": kept_bytes}

    def forward_alone(self) -> Value:
        """F of a microbatch that will be recomputed: nothing is kept. Returns the output."""
        value, _ = as_leaves(*self._arrived, learns=False)
        with torch.no_grad():
            output, _ = self._compute(self.subject.plain, value)
        return output

    def forward(self, *, split: bool) -> Pass:
        """F, or R, that is followed by B, or if ``split`` by I."""
        stage = self.subject.split if split else self.subject.plain
        value, leaves = as_leaves(*self._arrived, learns=self.subject.index > 0)
        output, loss = self._compute(stage, value)
        if loss is not None:
            return stage.begin_pass(leaves, [loss * self.arrival.scale], is_loss=True)
        return stage.begin_pass(leaves, flatten(output)[1], is_loss=False)

    def backward(self, forward: Pass) -> None:
        """B after an F of the plain stage."""
        self.subject.plain.backward(forward, self._output_gradients)
        forward.input_gradients()

    def input_backward(self, forward: Pass) -> Deferred | None:
        """I after an F of the split stage."""
        deferred = self.subject.split.input_backward(forward, self._output_gradients)
        forward.input_gradients()
        return deferred

    @staticmethod
    def weight_backward(deferred: Deferred | None) -> None:
        """W after that I."""
        if deferred is not None:
            deferred.run()

    def _compute(self, stage: Stage, value: Value) -> tuple[Value, Tensor | None]:
        microbatch = self.arrival.microbatch
        with stage.computing(self._device):
            output = stage(value, microbatch, self._draw, 0)
            loss = self.subject.loss
            return output, None if loss is None else loss.total(output, microbatch)


def _num_bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
