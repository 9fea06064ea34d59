"""Dealing out whole things in proportion to speed, as Zorse deals microbatches and layers."""

from collections.abc import Sequence


def shares(count: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Each its part rounded down, and what remains one by one to the fastest.

    Of equally fast ones the first come first. Source: section 4 (calculations of the published
    optimizer, ``distribute_microbatches_within_group``).
    """
    total = sum(speeds)
    dealt = [int(count * (speed / total)) for speed in speeds]
    fastest = sorted(range(len(speeds)), key=lambda i: -speeds[i])
    for turn in range(count - sum(dealt)):
        dealt[fastest[turn % len(fastest)]] += 1
    return tuple(dealt)
