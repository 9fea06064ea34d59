"""Memory and time: what a microbatch holds, for as long as it must."""

import numpy as np

from evener.planner.bounds.instance import WHOLE, Instance, quotient_up


def held_memory_ns(instance: Instance) -> int:
    """Bytes times nanoseconds of all activations, over the bytes that there are.

    Nothing is proven without a limit, or where microbatches are cut in slices.
    """
    memory = instance.memory
    if memory is None or instance.first_part != WHOLE:
        return 0
    chain = instance.chain
    way_ns = chain.forward_ns + chain.input_ns
    held_ns = np.cumsum(way_ns[::-1])[::-1]
    byte_ns = sum(
        int(held) * int(own_ns) for held, own_ns in zip(memory.held_bytes, held_ns, strict=True)
    )
    return quotient_up(byte_ns * instance.num_microbatches, max(1, memory.room_bytes))
