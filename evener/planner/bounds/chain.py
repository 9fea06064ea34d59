"""The way of one microbatch."""

from evener.planner.bounds.instance import WHOLE, Instance


def chain_ns(instance: Instance) -> int:
    """One microbatch goes forward through every layer, and its gradient all the way back.

    Nothing is proven of a microbatch that is cut in slices.
    """
    if instance.first_part != WHOLE:
        return 0
    chain = instance.chain
    compute_ns = int(chain.forward_ns.sum() + chain.input_ns.sum())
    return compute_ns + 2 * instance.hops * instance.message_ns
