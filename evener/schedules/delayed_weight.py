"""The order that both handcrafted zero-bubble schedules have in common.

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 2.2: the
backward is split in I and W, and W is put off by as many microbatches as the memory limit allows,
so that every worker holds the same number in flight.  H1 and H2 differ in that limit alone.
"""

from collections.abc import Sequence
from itertools import chain, repeat

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import StageTimes
from evener.schedules.row import row
from evener.schedules.shape import ScheduleShape


def delayed_weight_order(name: str, shape: ScheduleShape, *, max_in_flight: int) -> Schedule:
    """Write the order for a limit of microbatches in flight, counted until their W has ended.

    Worker w starts with p - w forwards, and more, up to 2(p-w) - 1, as far as the limit exceeds
    p.  Then each turn is I of the next microbatch, W of the one that came as many turns earlier
    as the limit leaves room for, and the next forward.
    """
    p, m = shape.num_workers, shape.num_microbatches
    beyond = max(0, max_in_flight - p)
    warm_ups = [min(max_in_flight, p - w + min(beyond, p - 1 - w)) for w in range(p)]
    workers = tuple(
        put_off_weights(
            row(worker, Kind.F, range(m)),
            row(worker, Kind.I, range(m)),
            warm_up=warm_up,
            put_off=max_in_flight - warm_up,
        )
        for worker, warm_up in enumerate(warm_ups)
    )
    return Schedule(name, shape.num_stages, m, workers)


def put_off_weights(
    forward: Sequence[Action], input_grad: Sequence[Action], *, warm_up: int, put_off: int
) -> tuple[Action, ...]:
    """Run ``warm_up`` forwards, then turns of I, the W of the I ``put_off`` turns ago, and F."""
    warm_up, put_off = min(len(forward), warm_up), min(len(forward), put_off)
    weight_grad = [action._replace(kind=Kind.W) for action in input_grad]
    turns = zip(
        input_grad,
        chain(repeat(None, put_off), weight_grad),
        chain(forward[warm_up:], repeat(None)),
        strict=False,
    )
    return (
        *forward[:warm_up],
        *[action for turn in turns for action in turn if action is not None],
        *weight_grad[len(weight_grad) - put_off :],
    )


def last_weight_gradient_ns(shape: ScheduleShape, times: StageTimes, *, max_in_flight: int) -> int:
    """When worker 0 ends its last W: no order with this limit on the last worker can be faster.

    The last worker starts after p - 1 forwards and can put off no more than max_in_flight W until
    after its last I; that I then travels back to worker 0, whose own W follows:
    (m+p-1)(tF+tI) + (m - min(m, max_in_flight) + 1) tW.
    """
    p, m = shape.num_workers, shape.num_units
    slots = (m + p - 1) * (times.forward_ns + times.input_grad_ns)
    return slots + (m - min(m, max_in_flight) + 1) * times.weight_grad_ns


def weight_fits_the_gaps(times: StageTimes) -> bool:
    """Whether W is no longer than F and no longer than I, as the closed forms require."""
    return times.weight_grad_ns <= min(times.forward_ns, times.input_grad_ns)


def peak_of_every_worker(shape: ScheduleShape, *, max_in_flight: int) -> tuple[int, ...]:
    """Per worker, the microbatches in flight: the limit, unless the step has fewer."""
    return (min(shape.num_microbatches, max_in_flight),) * shape.num_workers
