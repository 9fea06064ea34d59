"""A microbatch slice by slice: what of the data, and what of earlier slices, each forward gets."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

import torch
from torch import Tensor, nn

from evener.errors import UsageError
from evener.ir.schedule import Cell
from evener.modules.loss import Loss
from evener.modules.slice_context import TOKENS, Past, SliceContext
from evener.modules.slice_probe import has_doubtful_layers, require_tokenwise
from evener.modules.sliced_dropout import SlicedDropout
from evener.modules.stage import Stage
from evener.modules.values import Microbatch, Value, flatten, unflatten


class Slices:
    """The slices of all microbatches of a step on one worker.

    slice_tokens: of each slice. A microbatch whose sequences have another length than their sum is
        cut in proportion.
    input_name: the entry of a microbatch that has the length of its sequences.
    stages: those of the worker; their dropout is made to follow the slices.

    Stages with layers of a user that take no context are tried when they are given a first slice
    of several tokens.
    """

    def __init__(
        self, slice_tokens: Sequence[int], *, input_name: str, stages: Mapping[int, Stage]
    ) -> None:
        self._ends = tuple(accumulate(slice_tokens, initial=0))
        self._last = len(slice_tokens) - 1
        self._unproven = {index for index, stage in stages.items() if has_doubtful_layers(stage)}
        self._input_name = input_name
        self._is_counted = False
        self._dropout = SlicedDropout(nn.ModuleList(stages.values()))
        self._bounds: list[tuple[int, ...]] = []
        self._parts: dict[tuple[int, int | None], Microbatch] = {}
        # Per (stage, microbatch), until the first slice has gone backward.
        self._pasts: dict[tuple[int, int], Past] = {}
        self._contexts: dict[Cell, SliceContext] = {}

    def begin_step(self, microbatches: Sequence[Microbatch], loss: Loss) -> list[tuple[int, ...]]:
        """Look at the data; returns where each microbatch is cut.

        Raises UsageError, the same on every rank, if it cannot be, or if the loss does not count
        tokens.
        """
        self._bounds = [self._bounds_of(microbatch) for microbatch in microbatches]
        wrong = [
            _too_short(index, bounds[-1], len(bounds) - 1)
            for index, bounds in enumerate(self._bounds)
            if len(set(bounds)) < len(bounds)
        ]
        if wrong:
            raise UsageError(_CANNOT_SLICE, wrong)
        if not self._is_counted:
            self._require_token_loss(loss, microbatches[0])
            self._is_counted = True
        return self._bounds

    def _require_token_loss(self, loss: Loss, microbatch: Microbatch) -> None:
        """A loss of whole sequences, such as that of a last token, would be summed k times."""
        cells = [(0, 0, token_slice) for token_slice in range(len(self._ends) - 1)]
        counts = [loss.count(self._cut_out(cell, microbatch)) for cell in cells]
        whole = loss.count(microbatch)
        if sum(counts) != whole:
            raise UsageError(_CANNOT_SLICE, [_counts_samples(counts, whole)])

    def end_step(self) -> None:
        """Let the data go; nothing may be left over."""
        left = (self._pasts, self._contexts)
        assert not any(left), f"left over at the end of the step: {left}"
        self._parts = {}

    def part(self, cell: Cell, microbatch: Microbatch) -> Microbatch:
        """One slice: views of all entries that have the sequences' length, the rest as it is."""
        found = self._parts.get(cell[1:])
        if found is None:
            found = self._parts[cell[1:]] = self._cut_out(cell, microbatch)
        return found

    def _cut_out(self, cell: Cell, microbatch: Microbatch) -> Microbatch:
        offset, num_tokens, length = self._place(cell)
        return {
            name: value.narrow(TOKENS, offset, num_tokens)
            if isinstance(value, Tensor) and value.shape[TOKENS : TOKENS + 1] == (length,)
            else value
            for name, value in microbatch.items()
        }

    @contextmanager
    def forward(self, cell: Cell, part: Microbatch) -> Iterator[SliceContext]:
        """While this lasts, the slice's layers find their context in ``part``."""
        offset, num_tokens, length = self._place(cell)
        past = self._pasts.get(cell[:2])
        if past is None:
            past = self._pasts[cell[:2]] = Past(length)
        context = part["slice_context"] = SliceContext(past, offset, num_tokens)
        with self._dropout.of(context):
            yield context
        del part["slice_context"]

    def shared(self, cell: Cell) -> Iterator[Tensor]:
        """What the slices of a microbatch hold together in one stage."""
        past = self._pasts.get(cell[:2])
        yield from () if past is None else (slot.whole for slot in past.slots)

    def needs_proof(self, cell: Cell) -> bool:
        """Whether ``prove`` is to be called before this forward."""
        return cell[0] in self._unproven and self._place(cell)[1] > 1

    def prove(self, cell: Cell, stage: Stage, value: Value, part: Microbatch) -> None:
        """Raise UsageError if a layer of the stage needs a context that it does not take."""
        require_tokenwise(stage, value, part, num_tokens=self._place(cell)[1])
        self._unproven.discard(cell[0])

    def keep(self, cell: Cell, context: SliceContext) -> None:
        """A backward will follow this forward."""
        self._contexts[cell] = context

    def forget(self, cell: Cell) -> None:
        """None will: what was kept for later slices goes with the last."""
        if cell[2] == self._last:
            del self._pasts[cell[:2]]

    def gradients(self, cell: Cell) -> list[Tensor]:
        """What later slices found for this one, whose backward is next."""
        if cell[2] == 0:
            del self._pasts[cell[:2]]
        return self._contexts.pop(cell).gradients()

    def _place(self, cell: Cell) -> tuple[int, int, int]:
        """Offset and number of the slice's tokens, and the length of its sequences."""
        bounds, token_slice = self._bounds[cell[1]], cell[2]
        assert token_slice is not None, "every cell of the schedule is a slice"
        offset, end = bounds[token_slice : token_slice + 2]
        return offset, end - offset, bounds[-1]

    def _bounds_of(self, microbatch: Microbatch) -> tuple[int, ...]:
        inputs = microbatch[self._input_name]
        if not isinstance(inputs, Tensor) or inputs.dim() <= TOKENS:
            raise UsageError(_CANNOT_SLICE, [_no_tokens(self._input_name, inputs)])
        length = inputs.shape[TOKENS]
        return tuple(end * length // self._ends[-1] for end in self._ends)


def joined(outputs: Mapping[Cell, Value]) -> dict[int, Value]:
    """The outputs of whole microbatches: those of their slices, tokens behind one another.

    Raises UsageError if an output has no tokens along dimension 1.
    """
    by_microbatch: dict[int, list[Value]] = defaultdict(list)
    for (_, microbatch, _), output in outputs.items():
        by_microbatch[microbatch].append(output)
    return {index: _joined(parts) for index, parts in by_microbatch.items()}


def _joined(parts: Sequence[Value]) -> Value:
    if len(parts) == 1:
        return parts[0]
    skeleton, _ = flatten(parts[0])
    rows = list(zip(*(flatten(part)[1] for part in parts), strict=True))
    wrong = [_not_joined(row[0]) for row in rows if row[0].dim() <= TOKENS]
    if wrong:
        raise UsageError("the outputs of slices cannot be put together", wrong)
    return unflatten(skeleton, iter([torch.cat(row, TOKENS) for row in rows]))


_CANNOT_SLICE = "the batch cannot be cut into slices of tokens"


def _too_short(microbatch: int, length: int, num_slices: int) -> str:
    return (
        f"the sequences of microbatch {microbatch} have {length} tokens, too few for {num_slices} "
        "slices in the plan's proportion; give longer ones, or plan with fewer slices"
    )


def _no_tokens(input_name: str, inputs: Value) -> str:
    found = list(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
    return (
        f'"{input_name}" should be a tensor with samples along dimension 0 and tokens along '
        f"dimension 1, but is {found}; give such a one, or plan without slices"
    )


def _counts_samples(counts: list[int], whole: int) -> str:
    return (
        f"the loss counts {whole} in a microbatch, but {' + '.join(map(str, counts))} in its "
        "slices; a loss over slices is a sum over tokens: count tokens, or plan without slices"
    )


def _not_joined(output: Tensor) -> str:
    return (
        f"an output of a slice has the shape {list(output.shape)}, without tokens along dimension "
        "1; ask for no outputs, or plan without slices"
    )
