"""Dropout whose choice does not depend on how a sequence is cut.

A layer's random numbers are keyed by (seed, step, layer, microbatch), so for every slice the layer
draws the same ones.  The mask of a slice must be its part of the mask of the whole sequence: here
the whole mask is drawn, and the slice's part of it is used.  It costs the random numbers of the
whole sequence for each slice; keeping them between slices would cost the memory that slicing saves.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn import functional

from evener.modules.slice_context import TOKENS, SliceContext


class SlicedDropout:
    """Attaches to every ``nn.Dropout`` of a module; tokens are along dimension 1.

    Raises RuntimeError in a forward whose dropout is not applied to tokens along dimension 1.
    """

    def __init__(self, module: nn.Module) -> None:
        self._context: SliceContext | None = None
        for part in module.modules():
            if type(part) is nn.Dropout and part.p > 0:
                part.forward = _Forward(part, self)  # type: ignore[method-assign]

    @contextmanager
    def of(self, context: SliceContext) -> Iterator[None]:
        """While this lasts, the module computes that slice."""
        self._context = context
        try:
            yield
        finally:
            self._context = None

    def apply(self, x: Tensor, dropout: nn.Dropout) -> Tensor:
        """Dropout of the present slice; of the whole where there is none."""
        context = self._context
        if context is None or not dropout.training:
            return functional.dropout(x, dropout.p, dropout.training, dropout.inplace)
        if x.shape[TOKENS : TOKENS + 1] != (context.num_tokens,):
            raise RuntimeError(_not_along_tokens(x, context.num_tokens))
        whole = x.new_ones(x.shape[0], context.sequence_length, *x.shape[2:])
        mask = functional.dropout(whole, dropout.p)
        return x * mask.narrow(TOKENS, context.offset, context.num_tokens)


class _Forward:
    """The replaced ``forward`` of one dropout (a class so that the module can be copied)."""

    def __init__(self, dropout: nn.Dropout, sliced: SlicedDropout) -> None:
        self._dropout, self._sliced = dropout, sliced

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that nn.Dropout uses
        return self._sliced.apply(input, self._dropout)


def _not_along_tokens(x: Tensor, num_tokens: int) -> str:
    return (
        f"dropout of a tensor of shape {list(x.shape)} in a slice of {num_tokens} tokens, but only "
        "where dimension 1 is that of the tokens is it known which part of the whole sequence's "
        "dropout that is; move the dropout, or plan without slices"
    )
