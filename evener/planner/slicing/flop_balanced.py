"""Equal numbers of operations."""

from bisect import bisect_right

from evener.planner.slicing.work import SliceWork


def flop_balanced_slices(work: SliceWork, num_slices: int) -> tuple[int, ...]:
    """Slices with equal operations: earlier ones, with less context, are longer.

    From the last one backwards each slice has as many tokens as fit into its part of the operations
    that are left, rounded down to the grid; the first one has the rest.

    Source: Sun et al., "Seq1F1B", NAACL 2025 (arXiv 2406.03488), section 3.
    """
    lengths: list[int] = []
    end = work.num_tokens
    for left in range(num_slices, 1, -1):
        spare = (end - 1) // work.grid
        if spare < 1:
            break
        share = work.flops(0, end)

        def operations(units: int, end: int = end, left: int = left) -> int:
            num_tokens = units * work.grid
            return work.flops(end - num_tokens, num_tokens) * left

        fitting = bisect_right(range(1, spare + 1), share, key=operations)
        lengths.append(max(1, fitting) * work.grid)
        end -= lengths[-1]
    return (end, *reversed(lengths))
