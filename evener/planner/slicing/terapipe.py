"""The dynamic programme of TeraPipe over a table of latencies.

Li et al., "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale Language Models",
ICML 2021 (arXiv 2102.07988), section 3.3: with K stages and slices of t_i the pipeline takes
sum t_i + (K-1) max t_i.  For every value that the largest latency may have, the smallest sum is
found slice by slice.  The paper also splits the batch in the same way; here microbatches are equal,
m of them take m times the sum, and their size is the planner's choice.
"""

from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from evener.planner.slicing.work import SliceWork, boundaries

_NEVER = np.iinfo(np.int64).max // 4
_MOST_UNITS = 64


def terapipe_slices(work: SliceWork, num_slices: int) -> tuple[int, ...]:
    """The slices, as many as pay off, with the shortest step.

    A sequence of more than 64 tokens can be cut between 64 equal parts; where slices were measured,
    between the parts that were.
    """
    if work.measured_ns is not None:
        return slices_from_table(
            work.measured_ns,
            num_tokens=work.num_tokens,
            num_stages=work.num_stages,
            num_microbatches=work.num_microbatches,
            most_slices=num_slices,
        )
    num_units = max(1, min(_MOST_UNITS, work.num_tokens // work.grid))
    ends = boundaries(work.num_tokens, num_units, grid=work.grid)
    latency_ns = np.zeros((len(ends), len(ends)), dtype=np.int64)
    for first, last in combinations(range(len(ends)), 2):
        latency_ns[first, last] = work.latency_ns(ends[first], ends[last] - ends[first])
    cuts = best_cuts(
        latency_ns,
        num_stages=work.num_stages,
        num_microbatches=work.num_microbatches,
        most_slices=num_slices,
    )
    return tuple(ends[last] - ends[first] for first, last in pairwise(cuts))


def slices_from_table(
    latency_ns: NDArray[np.int64],
    *,
    num_tokens: int,
    num_stages: int,
    num_microbatches: int,
    most_slices: int,
) -> tuple[int, ...]:
    """Tokens of each slice, for a table of latencies such as ``profiler.slices`` measures.

    latency_ns: see ``best_cuts``, between equal parts of a sequence of ``num_tokens``.
    """
    ends = boundaries(num_tokens, len(latency_ns) - 1)
    cuts = best_cuts(
        latency_ns,
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        most_slices=most_slices,
    )
    return tuple(ends[last] - ends[first] for first, last in pairwise(cuts))


def best_cuts(
    latency_ns: NDArray[np.int64], *, num_stages: int, num_microbatches: int, most_slices: int
) -> list[int]:
    """Boundaries 0, ..., n of the slices for which m sum t_i + (K-1) max t_i is smallest.

    latency_ns: int64[first, last] of the slice between two boundaries, 0 to n; read for first <
        last.
    """
    n = len(latency_ns) - 1
    limits = np.unique(latency_ns[np.triu_indices(n + 1, 1)])
    # sums[count, end, limit]: the smallest sum of `count` slices up to `end`, none above the limit.
    sums = np.full((most_slices + 1, n + 1, len(limits)), _NEVER, dtype=np.int64)
    sums[0, 0] = 0
    for last in range(1, n + 1):
        for first in range(last):
            allowed = np.searchsorted(limits, latency_ns[first, last])
            reached = sums[:-1, first, allowed:] + latency_ns[first, last]
            np.minimum(sums[1:, last, allowed:], reached, out=sums[1:, last, allowed:])
    steps_ns = num_microbatches * np.minimum(sums[1:, n], _NEVER // num_microbatches)
    steps_ns += (num_stages - 1) * limits
    count, place = np.unravel_index(steps_ns.argmin(), steps_ns.shape)
    return _traced(latency_ns, sums[: count + 2, :, place], int(limits[place]))


def _traced(latency_ns: NDArray[np.int64], sums: NDArray[np.int64], limit_ns: int) -> list[int]:
    """The boundaries that make up the last of the sums, under one limit."""
    cuts = [len(latency_ns) - 1]
    for count in range(len(sums) - 1, 0, -1):
        last = cuts[0]
        cuts.insert(
            0,
            next(
                first
                for first in range(last)
                if latency_ns[first, last] <= limit_ns
                and sums[count - 1, first] + latency_ns[first, last] == sums[count, last]
            ),
        )
    return cuts
