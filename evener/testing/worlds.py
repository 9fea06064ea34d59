"""Tiny worlds: costs small enough to check by hand, one for each way in which things are unequal.

Each function takes the number of workers and of stages.  Times are nanoseconds below 20, so that
a step can be drawn on paper; B takes as long as I and W together; a stage holds one byte per
microbatch until its last backward action has ended, unless said otherwise.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import add
from types import MappingProxyType

import numpy as np

from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource
from evener.schedules import PipelineTimes

# Three of each, so that the pattern never falls in step with 2 or 4 workers.
_FORWARD_NS = (3, 5, 2)
_INPUT_GRAD_NS = (4, 6, 2)
_WEIGHT_GRAD_NS = (2, 5, 1)
_HELD_BYTES = (10, 40, 5)


def unit_costs(num_workers: int, num_stages: int) -> CostTable:
    """F = I = W = 1 and B = 2 everywhere; messages take no time."""
    return equal_costs(num_workers, num_stages, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)


def equal_costs(
    num_workers: int, num_stages: int, *, forward_ns: int, input_grad_ns: int, weight_grad_ns: int
) -> CostTable:
    """The given times on every stage; messages take no time."""
    times = {Kind.F: forward_ns, Kind.I: input_grad_ns, Kind.W: weight_grad_ns}
    times[Kind.B] = input_grad_ns + weight_grad_ns
    table = CostTable.of_stages(
        num_workers, {kind: [ns] * num_stages for kind, ns in times.items()}
    )
    return replace(table, memory=_held(num_workers, (1,) * num_stages))


def unequal_costs(num_workers: int, num_stages: int) -> CostTable:
    """Stages 0, 1, 2, 3, ... take F 3 5 2 3, I 4 6 2 4, W 2 5 1 2 and hold 10 40 5 10 bytes."""
    forward, input_grad, weight_grad, held = (
        [values[stage % 3] for stage in range(num_stages)]
        for values in (_FORWARD_NS, _INPUT_GRAD_NS, _WEIGHT_GRAD_NS, _HELD_BYTES)
    )
    table = CostTable.of_stages(
        num_workers,
        {
            Kind.F: forward,
            Kind.I: input_grad,
            Kind.W: weight_grad,
            Kind.B: [i + w for i, w in zip(input_grad, weight_grad, strict=True)],
        },
    )
    return replace(table, memory=_held(num_workers, tuple(held)))


def slow_link_costs(num_workers: int, num_stages: int) -> CostTable:
    """``unequal_costs``; a message takes 3 ns to pass and 2 ns on the way, 7 to and from worker 0.

    3 ns to pass: 6 bytes at 2e9 bytes/s.
    """
    table = unequal_costs(num_workers, num_stages)
    latency_ns = np.full((num_workers, num_workers), 2, dtype=np.int64)
    latency_ns[0, :] = latency_ns[:, 0] = 7
    return replace(
        table,
        forward_bytes=np.full(num_stages, 6, dtype=np.int64),
        backward_bytes=np.full(num_stages, 6, dtype=np.int64),
        latency_ns=latency_ns,
        bytes_per_s=np.full((num_workers, num_workers), 2_000_000_000, dtype=np.int64),
    )


def slow_worker_costs(num_workers: int, num_stages: int) -> CostTable:
    """``unit_costs``, but the last worker takes three times as long for everything."""
    table = unit_costs(num_workers, num_stages)
    time_ns = table.time_ns.copy()
    time_ns[-1] *= 3
    return replace(table, time_ns=time_ns)


def unequal_times(num_stages: int) -> PipelineTimes:
    """For schedules that adapt to costs: as ``unequal_costs``, and messages take 10 5 5 10 ns.

    What I leaves behind is half as large as what the forward saved.
    """
    forward, input_grad, weight_grad, held, message = (
        tuple(values[stage % 3] for stage in range(num_stages))
        for values in (_FORWARD_NS, _INPUT_GRAD_NS, _WEIGHT_GRAD_NS, _HELD_BYTES, (10, 5, 5))
    )
    return PipelineTimes(
        forward_ns=forward,
        input_grad_ns=input_grad,
        weight_grad_ns=weight_grad,
        forward_message_ns=message[: num_stages - 1],
        backward_message_ns=message[: num_stages - 1],
        activation_bytes=held,
        weight_gradient_bytes=tuple(size // 2 for size in held),
    )


def pipeline_costs(num_workers: int, times: PipelineTimes) -> CostTable:
    """The costs that ``times`` speaks of, the same on every worker."""
    kinds = {Kind.F: times.forward_ns, Kind.I: times.input_grad_ns, Kind.W: times.weight_grad_ns}
    kinds[Kind.B] = tuple(map(add, times.input_grad_ns, times.weight_grad_ns))
    table = CostTable.of_stages(num_workers, kinds)
    sizes = {
        Resource.ACTIVATION: times.activation_bytes,
        Resource.WEIGHT_GRADIENT: times.weight_gradient_bytes,
    }
    return replace(
        table,
        # At 1e9 bytes/s a message takes as many nanoseconds as it has bytes.
        forward_bytes=np.array([*times.forward_message_ns, 0], dtype=np.int64),
        backward_bytes=np.array([0, *times.backward_message_ns], dtype=np.int64),
        bytes_per_s=np.full((num_workers, num_workers), 1_000_000_000, dtype=np.int64),
        memory=MemoryTable(sizes, static_bytes=(0,) * num_workers),
    )


def _held(num_workers: int, per_microbatch: tuple[int, ...]) -> MemoryTable:
    # What I leaves behind is as large as what the forward saved: then bytes count microbatches.
    resources = (Resource.ACTIVATION, Resource.WEIGHT_GRADIENT)
    return MemoryTable(dict.fromkeys(resources, per_microbatch), static_bytes=(0,) * num_workers)


WORLDS: Mapping[str, Callable[[int, int], CostTable]] = MappingProxyType(
    {
        "unit": unit_costs,
        "unequal": unequal_costs,
        "slow_link": slow_link_costs,
        "slow_worker": slow_worker_costs,
    }
)
