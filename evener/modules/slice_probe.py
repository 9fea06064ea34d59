"""Finds out by trying whether layers that take no ``slice_context`` work token by token."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from evener.errors import UsageError
from evener.modules.buffers import BufferWatch, put
from evener.modules.slice_context import TOKENS, Past, SliceContext
from evener.modules.sliceable import takes_slice_context
from evener.modules.stage import Stage
from evener.modules.values import Microbatch, Value, flatten, unflatten

# Far more than rounding, far less than what a token gets from another one.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
_COARSE = 0.1


def has_doubtful_layers(stage: Stage) -> bool:
    """Whether there is anything to try."""
    return any(map(_is_doubtful, stage.layers))


def _is_doubtful(layer: nn.Module) -> bool:
    """A user's that takes no context; the reference layers are known."""
    return not takes_slice_context(layer) and not type(layer).__module__.startswith("evener.")


@torch.no_grad()
def require_tokenwise(stage: Stage, value: Value, part: Microbatch, num_tokens: int) -> None:
    """Run a slice through ``stage``, and its end alone through each doubtful layer.

    value, part: what the stage is given for a slice of 2 tokens or more; layers may change the
        value in place.

    Raises UsageError that names the first layer that gives the last tokens another result without
    the first ones: it mixes tokens, or counts positions from where the slice begins.
    """
    probes = [
        _Probe(f"layer {index} ({type(layer).__name__})", layer, num_tokens)
        for index, layer in zip(stage.indices, stage.layers, strict=True)
        if _is_doubtful(layer)
    ]
    was_training, buffers = stage.training, BufferWatch(stage)
    try:
        stage.eval()
        context = SliceContext(Past(num_tokens), 0, num_tokens)
        stage(value, {**part, "slice_context": context}, None, 0)
    finally:
        put(buffers.changed())
        stage.train(was_training)
        for probe in probes:
            probe.remove()


class _Probe:
    """Runs the end of a slice through a layer whenever the slice runs through it."""

    def __init__(self, name: str, layer: nn.Module, num_tokens: int) -> None:
        self._name, self._num_tokens = name, num_tokens
        self._end: Value = None
        self._hooks = [
            layer.register_forward_pre_hook(self._before),
            layer.register_forward_hook(self._behind, with_kwargs=True),
        ]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before(self, layer: nn.Module, given: tuple[Value]) -> None:
        """Copy the end now: the layer may change it in place."""
        skeleton, tensors = flatten(given[0])
        self._end = unflatten(skeleton, (self._end_of(each).clone() for each in tensors))

    def _behind(
        self, layer: nn.Module, given: tuple[Value], named: Mapping[str, Any], y: Value
    ) -> None:
        # Not by a call, whose hooks would begin this anew.
        alone = layer.forward(
            self._end,
            **{
                name: self._end_of(each) if isinstance(each, Tensor) else each
                for name, each in named.items()
            },
        )
        for ours, theirs in zip(flatten(alone)[1], flatten(y)[1], strict=True):
            if not _are_close(ours, self._end_of(theirs)):
                raise UsageError(
                    "the model cannot be computed in slices of tokens", [_mixes(self._name)]
                )

    def _end_of(self, tensor: Tensor) -> Tensor:
        if tensor.shape[TOKENS : TOKENS + 1] == (self._num_tokens,):
            return tensor[:, self._num_tokens // 2 :]
        return tensor


def _are_close(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape:
        return False
    if not ours.is_floating_point() or not ours.numel():
        return torch.equal(ours, theirs)
    tolerance = _TOLERANCE.get(ours.dtype, _COARSE) * theirs.abs().max().item()
    return torch.allclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True)


def _mixes(name: str) -> str:
    return (
        f"{name} gives the last tokens of a slice another result without the first ones, so it "
        "mixes tokens or counts positions, but its forward takes no slice_context; give it one, or "
        "plan without slices"
    )
