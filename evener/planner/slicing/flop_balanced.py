"""Equal numbers of operations."""

from bisect import bisect_left
from itertools import pairwise

from evener.planner.slicing.work import SliceWork


def flop_balanced_slices(work: SliceWork, num_slices: int) -> tuple[int, ...]:
    """Slices with equal operations: earlier ones, with less context, are longer.

    From the last one backwards each slice has as many tokens as fit into its part of the operations
    that are left, down to the grid; the first one has the rest.

    Source: Sun et al., "Seq1F1B", NAACL 2025 (arXiv 2406.03488), section 3.
    """
    starts: list[int] = []
    end = work.num_tokens
    for left in range(min(num_slices, -(-end // work.grid)), 1, -1):
        share = work.flops(0, end)

        def behind(start: int, end: int = end, left: int = left) -> int:
            return -work.flops(start * work.grid, end - start * work.grid) * left

        # The first place on the grid behind which is no more than the share; before it there is
        # room for the other slices.
        last = (end - 1) // work.grid
        start = min(last, bisect_left(range(last + 1), -share, lo=left - 1, key=behind))
        starts.append(start * work.grid)
        end = starts[-1]
    ends = [*reversed(starts), work.num_tokens]
    return tuple(end - start for start, end in pairwise([0, *ends]))
