"""The number of subsequences by SPPO's heuristic.

"SPPO: Efficient Long-sequence LLM Training via Adaptive Sequence Pipeline Parallel Offloading"
(arXiv 2503.10377): more subsequences shorten the ramps of the pipeline, (N+p-1)/N, and make every
kernel less efficient.  The paper bounds a subsequence to 2K to 16K tokens and simulates the rest;
here what the latency says of short slices takes the place of the bounds.
"""

from evener.planner.slicing.flop_balanced import flop_balanced_slices
from evener.planner.slicing.work import SliceWork


def sppo_slices(work: SliceWork, num_slices: int) -> tuple[int, ...]:
    """FLOP-balanced subsequences, of the number up to ``num_slices`` with the shortest step."""
    candidates = (flop_balanced_slices(work, count) for count in range(1, num_slices + 1))
    return min(candidates, key=lambda lengths: _step_ns(work, lengths))


def _step_ns(work: SliceWork, lengths: tuple[int, ...]) -> int:
    """Of one sequence: the sum of its slices, and the largest one for each further stage."""
    first, times_ns = 0, []
    for length in lengths:
        times_ns.append(work.latency_ns(first, length))
        first += length
    return sum(times_ns) + (work.num_stages - 1) * max(times_ns)
