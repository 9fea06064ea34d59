"""How long a pipeline takes to fill, and to drain where no work may wait."""

from fractions import Fraction

import numpy as np

from evener.planner.bounds.instance import WHOLE, Instance, Times, quotient_up


def fill_ns(instance: Instance) -> int:
    """All work, and the time in which there is not enough of it for all workers.

    Nothing is proven where microbatches are cut in slices.
    """
    if instance.first_part != WHOLE:
        return 0
    chain = instance.chain
    critical_ns = int(chain.forward_ns.sum() + chain.input_ns.sum()) * instance.num_microbatches
    rest_ns = int(chain.rest_ns.sum()) * instance.num_microbatches
    late_ns = max(rest_ns, _idle_ns(instance, chain.input_ns))
    early_ns = _idle_ns(instance, chain.forward_ns)
    return quotient_up(critical_ns + early_ns + late_ns, instance.num_workers)


def _idle_ns(instance: Instance, times_ns: Times) -> int:
    """Of all workers together, until the first microbatch has come through all layers.

    Every worker waits for its first layer to be reached.  On top comes the most over all moments of
    what the workers could have done from then on, less what all layers can have done by then.
    """
    arrival_ns = instance.arrival_ns(times_ns)
    start_ns = _earliest_starts_ns(times_ns, instance.num_microbatches, instance.stage_copies)
    end_ns = start_ns + times_ns[:, None]
    moments = np.unique(np.concatenate([start_ns.ravel(), end_ns.ravel()]))
    moments = moments[moments <= times_ns.sum()]
    done_ns = _total_since(start_ns, moments) - _total_since(end_ns, moments)
    done_ns = np.minimum(done_ns, _most_held_ns(instance, times_ns))
    return int(arrival_ns.sum() + (_total_since(arrival_ns, moments) - done_ns).max())


def _most_held_ns(instance: Instance, times_ns: Times) -> int:
    """How much can have been done while all that was begun is still held: what holds least, first.

    At the end, read backwards, it is what is left to do and held already.
    """
    most_ns = int(times_ns.sum()) * instance.num_microbatches
    if instance.memory is None:
        return most_ns
    pairs = zip(times_ns.tolist(), instance.memory.held_bytes.tolist(), strict=True)
    layers = [(own_ns, held_bytes) for own_ns, held_bytes in pairs if own_ns > 0]
    layers.sort(key=lambda layer: Fraction(layer[1], layer[0]))
    room_bytes, done_ns = max(0, instance.memory.room_bytes), 0
    for own_ns, held_bytes in layers:
        all_bytes = held_bytes * instance.num_microbatches
        if all_bytes > room_bytes:
            return done_ns + quotient_up(own_ns * room_bytes, held_bytes)
        room_bytes -= all_bytes
        done_ns += own_ns * instance.num_microbatches
    return most_ns


def _earliest_starts_ns(times_ns: Times, num_microbatches: int, copies: int) -> Times:
    """int64[layer, k], before which no layer starts for the (k + 1)-th time.

    By then the layer in front has ended k + 1 times, and all but copies - 1 of the k before here.
    """
    starts_ns = np.empty((len(times_ns), num_microbatches), dtype=np.int64)
    arrived_ns = np.zeros(num_microbatches, dtype=np.int64)
    for layer, own_ns in enumerate(times_ns):
        for copy in range(copies):  # takes every copies-th microbatch, as they come
            own_arrived_ns = arrived_ns[copy::copies]
            busy_ns = np.arange(len(own_arrived_ns)) * own_ns
            free_from_ns = np.maximum.accumulate(own_arrived_ns - busy_ns)
            starts_ns[layer, copy::copies] = free_from_ns + busy_ns
        arrived_ns = starts_ns[layer] + own_ns
    return starts_ns


def _total_since(events_ns: Times, moments: Times) -> Times:
    """Per moment, the sum over all events before it of the time since."""
    events_ns = np.sort(events_ns.ravel())
    num_before = np.searchsorted(events_ns, moments)
    sums_ns = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(events_ns)])
    since_ns: Times = num_before * moments - sums_ns[num_before]
    return since_ns
