"""The rows of a head whose vocabulary is spread over several workers."""

from itertools import pairwise


def rows_of(vocabulary_size: int, num_parts: int) -> list[range]:
    """The rows of each part: as even as can be."""
    bounds = [-(-vocabulary_size * part // num_parts) for part in range(num_parts + 1)]
    return [range(first, end) for first, end in pairwise(bounds)]
