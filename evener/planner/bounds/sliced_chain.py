"""The way of the longest slice of a microbatch."""

from evener.planner.bounds.instance import Instance


def sliced_chain_ns(instance: Instance) -> int:
    """One slice goes forward through every layer, and its gradient all the way back.

    Nothing is proven of whole microbatches, whose way is longer.
    """
    if instance.slice_way_ns is None:
        return 0
    return int(instance.slice_way_ns.sum()) + 2 * instance.hops * instance.message_ns
