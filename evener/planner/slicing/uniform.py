"""Equal numbers of tokens."""

from evener.planner.slicing.work import SliceWork


def uniform_slices(work: SliceWork, num_slices: int) -> tuple[int, ...]:
    """Slices of equal length; where it does not come out even, the first ones have a token more.

    Source: SlimPipe (arXiv 2504.14519), uniform slicing.
    """
    count = min(num_slices, work.num_tokens)
    length, longer = divmod(work.num_tokens, count)
    return (length + 1,) * longer + (length,) * (count - longer)
