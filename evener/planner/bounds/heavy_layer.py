"""The worker that holds a heavy layer, such as the head."""

from typing import NamedTuple

import numpy as np

from evener.planner.bounds.instance import Instance, Times, quotient_up


class Window(NamedTuple):
    """The heaviest layer; no F or I of it before ``there_ns`` or in the last ``back_ns``."""

    layer: int
    there_ns: int
    back_ns: int


def heavy_layer_ns(instance: Instance) -> int:
    """The way to a layer, all that one worker does for it, and the way back."""
    return int(_steps_ns(instance).max())


def heaviest(instance: Instance) -> Window:
    """The layer that proves most by itself."""
    layer = int(_steps_ns(instance).argmax())
    there_ns, back_ns = (
        _ways_ns(instance, times_ns)
        for times_ns in (instance.chain.forward_ns, instance.chain.input_ns)
    )
    return Window(layer, int(there_ns[layer]), int(back_ns[layer]))


def _steps_ns(instance: Instance) -> Times:
    """Per layer, what it proves."""
    chain, copies = instance.chain, instance.stage_copies
    share = quotient_up(instance.num_microbatches, copies)
    critical_ns = share * (chain.forward_ns + chain.input_ns)
    work_ns = share * chain.work_ns
    if instance.is_frozen:
        work_ns = instance.num_microbatches * chain.work_ns // copies
    way_back_ns = _ways_ns(instance, chain.input_ns)
    way_there_ns = _ways_ns(instance, chain.forward_ns)
    steps_ns: Times = way_there_ns + np.maximum(critical_ns + way_back_ns, work_ns)
    return steps_ns


def _ways_ns(instance: Instance, times_ns: Times) -> Times:
    """Per layer, the least time from layer 0 to it; the way to the last one meets all workers."""
    ways_ns = instance.front_ns(times_ns)
    ways_ns[-1] += instance.hops * instance.message_ns
    return ways_ns
