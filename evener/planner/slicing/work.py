"""What a slicer is asked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SliceWork:
    """A sequence that is to be cut for one pipeline.

    num_tokens: of the sequence. grid: slices end at multiples of it, and at the end.
    num_stages, num_microbatches: of the pipeline.
    flops: (first token, number of tokens) -> operations of the model on such a slice.
    latency_ns: the same -> time of its forward and backward on one stage, what every action costs
        besides included.
    measured_ns: int64[first, last], the same as measured, between the boundaries 0 to n of n equal
        parts; None where nothing was.
    """

    num_tokens: int
    num_stages: int
    num_microbatches: int
    flops: Callable[[int, int], int]
    latency_ns: Callable[[int, int], int]
    grid: int = 1
    measured_ns: NDArray[np.int64] | None = None


def boundaries(num_tokens: int, num_units: int, *, grid: int = 1) -> list[int]:
    """Where a sequence can be cut: the ends of equal parts on a grid, 0 included."""
    inner = [num_tokens * unit // num_units // grid * grid for unit in range(num_units)]
    return [*inner, num_tokens]


class Slicer(Protocol):
    """Cuts a sequence into at most ``num_slices`` slices; gives the tokens of each."""

    def __call__(self, work: SliceWork, num_slices: int) -> tuple[int, ...]: ...
