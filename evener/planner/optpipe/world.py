"""What the search knows of one candidate: flat arrays that its compiled parts read."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evener.cost.network import send_ns
from evener.cost.table import KIND_INDEX, CostTable
from evener.ir.action import Kind
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.planner.pipeline_times import pipeline_times
from evener.spec.cluster import Link

Int = NDArray[np.int64]

KEEP, OFFLOAD, RECOMPUTE = range(3)
"""What becomes of the activations of a cell between its forward and its backward."""

FORWARD, AGAIN, BACKWARD, WEIGHT, OUT, FREE, IN = range(7)
"""F, R, I (or B), W, OFFLOAD, FREE and RELOAD."""

NEVER = 2**62


class World(NamedTuple):
    """One pipeline whose stages stand on workers already; all int64.

    sizes: [2], workers and microbatches. worker: [stage]. time_ns: [stage, F R I W].
    whole_ns: [stage], of a backward that is not split. copy_ns: [stage], of a cell's activations,
    one way. wire_ns: [F or I, stage], from a stage to the next one, or to the one before it.
    activation_bytes, checkpoint_bytes, weight_bytes: [stage]. cap_bytes: [worker], for cells.
    tail_ns: [worker], of the optimizer. group: [worker], equal where a link to the host is shared.
    alone: [worker], 1 if it is not. may: [3], whether cells may be kept, offloaded, recomputed.
    """

    sizes: Int
    worker: Int
    time_ns: Int
    whole_ns: Int
    copy_ns: Int
    wire_ns: Int
    activation_bytes: Int
    checkpoint_bytes: Int
    weight_bytes: Int
    cap_bytes: Int
    tail_ns: Int
    group: Int
    alone: Int
    may: Int


def world_of(
    schedule: Schedule,
    costs: CostTable,
    *,
    links: Sequence[Link] | None,
    groups: Sequence[int],
    cap_bytes: Sequence[int],
    may: Sequence[int],
) -> World:
    """The costs of a schedule of one replica that holds every stage once.

    links: per worker, to the memory of its host; None if that is not known.
    groups: per worker, equal where they share that link. cap_bytes: per worker, of everything.
    """
    times = pipeline_times(schedule, costs, cap_bytes)
    worker = np.array([holders[0] for holders in schedule.workers_of_stage], dtype=np.int64)
    stages = np.arange(len(worker))
    of_stage = costs.time_ns[worker, stages]
    crosses = worker[1:] != worker[:-1]
    wire_ns = np.zeros((2, len(worker)), dtype=np.int64)
    wire_ns[0, :-1] = np.where(crosses, times.forward_message_ns, 0)
    wire_ns[1, 1:] = np.where(crosses, times.backward_message_ns, 0)
    copied = zip(times.activation_bytes, worker.tolist(), strict=True)
    copy_ns = [0 if links is None else send_ns(size, links[own]) for size, own in copied]
    tail_ns = np.zeros(schedule.num_workers, dtype=np.int64)
    np.add.at(tail_ns, worker, of_stage[:, KIND_INDEX[Kind.STEP]])
    shared = [groups.count(group) > 1 for group in groups]
    return World(
        sizes=_int64((schedule.num_workers, schedule.num_microbatches)),
        worker=worker,
        time_ns=of_stage[:, [KIND_INDEX[kind] for kind in (Kind.F, Kind.R, Kind.I, Kind.W)]].copy(),
        whole_ns=of_stage[:, KIND_INDEX[Kind.B]].copy(),
        copy_ns=_int64(copy_ns),
        wire_ns=wire_ns,
        activation_bytes=_int64(times.activation_bytes),
        checkpoint_bytes=_int64(costs.memory.per_stage[Resource.CHECKPOINT]),
        weight_bytes=_int64(times.weight_gradient_bytes),
        cap_bytes=_int64(times.cap_bytes or ()),
        tail_ns=tail_ns,
        group=_int64([groups.index(group) for group in groups]),
        alone=_int64([not each for each in shared]),
        may=_int64(may),
    )


def _int64(values: Sequence[int]) -> Int:
    return np.array(values, dtype=np.int64)
