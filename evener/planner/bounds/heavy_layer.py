"""The worker that holds a heavy layer, such as the head."""

import numpy as np

from evener.planner.bounds.instance import Instance, quotient_up


def heavy_layer_ns(instance: Instance) -> int:
    """The way to a layer, all that one worker does for it, and the way back."""
    chain, copies = instance.chain, instance.stage_copies
    share = quotient_up(instance.num_microbatches, copies)
    critical_ns = share * (chain.forward_ns + chain.input_ns)
    work_ns = share * chain.work_ns
    if instance.is_frozen:
        work_ns = instance.num_microbatches * chain.work_ns // copies
    hops_ns = np.zeros(instance.num_layers, dtype=np.int64)
    hops_ns[-1] = instance.hops * instance.message_ns
    way_back_ns = instance.front_ns(chain.input_ns) + hops_ns
    way_there_ns = instance.front_ns(chain.forward_ns) + hops_ns
    return int((way_there_ns + np.maximum(critical_ns + way_back_ns, work_ns)).max())
