"""Equal numbers of operations."""

from bisect import bisect_right

from evener.planner.slicing.work import SliceWork


def flop_balanced_slices(work: SliceWork, num_slices: int) -> tuple[int, ...]:
    """Slices with equal operations: earlier ones, with less context, are longer.

    From the last one backwards each slice has as many tokens as fit into its part of the operations
    that are left; the first one has the rest.

    Source: Sun et al., "Seq1F1B", NAACL 2025 (arXiv 2406.03488), section 3.
    """
    lengths: list[int] = []
    end = work.num_tokens
    for left in range(min(num_slices, end), 1, -1):
        share = work.flops(0, end)

        def operations(tokens: int, end: int = end, left: int = left) -> int:
            return work.flops(end - tokens, tokens) * left

        # As many tokens are left as slices, or more.
        fitting = bisect_right(range(1, end - left + 2), share, key=operations)
        lengths.append(max(1, fitting))
        end -= lengths[-1]
    return (end, *reversed(lengths))
