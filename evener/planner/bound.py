"""Lower bounds on the step time of a pipeline; each is proven in its docstring.

Vectors have one entry per layer of the chain and hold the time of one microbatch on the fastest
worker that may run it, in nanoseconds.  Communication and the optimizer only ever add time, so
leaving them out keeps every bound valid.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

WHOLE = Fraction(1)


@dataclass(frozen=True)
class ChainTimes:
    """Times of one microbatch per layer.

    forward_ns: forward. input_ns: the least that a layer adds to the way back of a gradient.
    work_ns: the least that forward and backward of the layer cost a worker in all.
    """

    forward_ns: NDArray[np.int64]
    input_ns: NDArray[np.int64]
    work_ns: NDArray[np.int64]


def load_bound_ns(chain: ChainTimes, *, num_workers: int, num_microbatches: int) -> int:
    """All work divided by all workers: no worker can do more than one thing at a time."""
    work_ns = int(chain.work_ns.sum()) * num_microbatches
    return -(-work_ns // num_workers)


def chain_bound_ns(chain: ChainTimes) -> int:
    """One microbatch goes forward through every layer, and its gradient all the way back."""
    return int(chain.forward_ns.sum() + chain.input_ns.sum())


def heavy_layer_bound_ns(
    chain: ChainTimes,
    *,
    num_microbatches: int,
    stage_copies: int = 1,
    first_part: Fraction = WHOLE,
    is_frozen: bool = False,
) -> int:
    """Of the ``stage_copies`` workers that hold a layer one runs no less than its share.

    Its share are all microbatches of the pipeline, or half of them (rounded up) where a schedule
    runs in both directions.  It cannot start before a microbatch has come through the layers in
    front (their forwards).  After its last input gradient that gradient still has to go back
    through the layers in front.  So for every layer: forwards in front + forwards and input
    gradients of the share + way back in front; and likewise forwards in front + all its work.
    Of a microbatch that is cut in slices the way in front takes ``first_part`` or more, as the next
    layer can start with the first slice.
    Where parameters are frozen, the work of a layer is its mean over the microbatches; that of the
    share may be less, but one of the workers does no less than its part of all.
    """
    before_forward_ns = _part(np.cumsum(chain.forward_ns) - chain.forward_ns, first_part)
    before_input_ns = _part(np.cumsum(chain.input_ns) - chain.input_ns, first_part)
    share = -(-num_microbatches // stage_copies)
    critical_ns = share * (chain.forward_ns + chain.input_ns) + before_input_ns
    all_work_ns = share * chain.work_ns
    if is_frozen:
        all_work_ns = num_microbatches * chain.work_ns // stage_copies
    return int((before_forward_ns + np.maximum(critical_ns, all_work_ns)).max())


def pipeline_bound_ns(
    chain: ChainTimes,
    *,
    num_workers: int,
    num_microbatches: int,
    num_updates: int = 1,
    stage_copies: int = 1,
    first_part: Fraction = WHOLE,
    is_frozen: bool = False,
) -> int:
    """The largest of the bounds, for one update of one pipeline of ``num_workers`` workers.

    num_microbatches: of one update. num_updates: updates between two flushes; what bounds the run
        of all of them bounds their mean.
    first_part: the smallest part of a microbatch, in time, that goes from layer to layer at once.
    is_frozen: whether parameters are frozen; then ``work_ns`` is a mean over the microbatches.
    """
    total = num_microbatches * num_updates
    run_ns = max(
        load_bound_ns(chain, num_workers=num_workers, num_microbatches=total),
        chain_bound_ns(chain) if first_part == WHOLE else 0,
        heavy_layer_bound_ns(
            chain,
            num_microbatches=total,
            stage_copies=stage_copies,
            first_part=first_part,
            is_frozen=is_frozen,
        ),
    )
    return -(-run_ns // num_updates)


def _part(times_ns: NDArray[np.int64], part: Fraction) -> NDArray[np.int64]:
    return times_ns * part.numerator // part.denominator
