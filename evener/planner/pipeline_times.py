"""From a table of costs to what schedules that adapt to costs know of them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from evener.cost.network import transfer_ns
from evener.cost.table import KIND_INDEX, CostTable
from evener.ir.action import Kind
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.schedules import PipelineTimes


def pipeline_times(
    schedule: Schedule, costs: CostTable, cap_bytes: Sequence[int] | None
) -> PipelineTimes:
    """The costs of each stage on the first worker that holds it in ``schedule``.

    cap_bytes: per worker, of everything; what it always holds is taken off. None means no limit.
    """
    holders = [group[0] for group in schedule.workers_of_stage]
    messages_ns = list(_messages_ns(holders, costs))
    static = costs.memory.static_bytes[: schedule.num_workers]
    return PipelineTimes(
        forward_ns=_stage_ns(holders, costs, Kind.F),
        input_grad_ns=_stage_ns(holders, costs, Kind.I),
        weight_grad_ns=_stage_ns(holders, costs, Kind.W),
        forward_message_ns=tuple(there for there, _ in messages_ns),
        backward_message_ns=tuple(back for _, back in messages_ns),
        activation_bytes=tuple(costs.memory.per_stage[Resource.ACTIVATION]),
        weight_gradient_bytes=tuple(costs.memory.per_stage[Resource.WEIGHT_GRADIENT]),
        cap_bytes=None
        if cap_bytes is None
        else tuple(max(0, cap - held) for cap, held in zip(cap_bytes, static, strict=False)),
    )


def _stage_ns(holders: Sequence[int], costs: CostTable, kind: Kind) -> tuple[int, ...]:
    return tuple(
        int(costs.time_ns[worker, stage, KIND_INDEX[kind]]) for stage, worker in enumerate(holders)
    )


def _messages_ns(holders: Sequence[int], costs: CostTable) -> Iterator[tuple[int, int]]:
    """Per pair of neighbour stages, the time of the activation and of its gradient."""
    for stage, (source, target) in enumerate(pairwise(holders)):
        yield (
            _message_ns(costs, source, target, int(costs.forward_bytes[stage])),
            _message_ns(costs, target, source, int(costs.backward_bytes[stage + 1])),
        )


def _message_ns(costs: CostTable, source: int, target: int, num_bytes: int) -> int:
    passing_ns = transfer_ns(num_bytes, int(costs.bytes_per_s[source, target]))
    return int(costs.latency_ns[source, target]) + passing_ns
