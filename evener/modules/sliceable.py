"""Which layers can be computed slice by slice, as far as their modules tell.

A layer that takes a ``slice_context`` is trusted to use it.  Any other must give each token a
result that depends on this token alone, which some modules of torch surely do not (``slice_probe``
tries the others).  A part that has a text ``why_not_sliced`` never can.
"""

import inspect
from collections.abc import Iterator, Mapping

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AvgPoolNd, _MaxPoolNd

from evener.errors import UsageError

_MIX_TOKENS = (
    nn.MultiheadAttention,
    nn.RNNBase,
    _ConvNd,
    _NormBase,
    nn.GroupNorm,
    _AvgPoolNd,
    _MaxPoolNd,
)


def require_sliceable(layers: Mapping[str, nn.Module]) -> None:
    """Raise UsageError that names all ``layers`` (by global name) that cannot be sliced."""
    wrong = [
        _not_sliced(name, reason) for name, layer in layers.items() for reason in _reasons(layer)
    ]
    if wrong:
        raise UsageError("the model cannot be computed in slices of tokens", wrong)


def _reasons(layer: nn.Module) -> Iterator[str]:
    is_trusted = takes_slice_context(layer)
    for part in layer.modules():
        kind = type(part).__name__
        own = getattr(part, "why_not_sliced", None)
        if own is not None:
            yield own
        elif isinstance(part, _DropoutNd) and type(part) is not nn.Dropout and part.p > 0:
            yield f"its {kind} would draw other random numbers than for the whole sequence"
        elif isinstance(part, _MIX_TOKENS) and not is_trusted:
            yield f"its {kind} mixes tokens, and its forward takes no slice_context"


def takes_slice_context(layer: nn.Module) -> bool:
    """Whether the forward of a layer names the parameter by which it takes part."""
    forward = getattr(layer, "_orig_mod", layer).forward  # compiled modules hide theirs
    return "slice_context" in inspect.signature(forward).parameters


def _not_sliced(name: str, reason: str) -> str:
    return (
        f"{name}: {reason}; plan without slices, or give the layer a forward that takes a "
        "slice_context"
    )
