"""What every action of a plan costs: the only thing that the simulator knows about the world."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evener.cost.braid import braid_ns
from evener.cost.network import transfer_ns
from evener.errors import ProfileError, UsageError
from evener.ir.action import Action, Kind
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource

KIND_INDEX: Mapping[Kind, int] = {kind: index for index, kind in enumerate(Kind)}
"""Position of each kind on the last axis of ``CostTable.time_ns``."""


@dataclass(frozen=True, eq=False)
class SliceCosts:
    """What differs between the slices of a microbatch; times in nanoseconds, all int64.

    time_ns: [worker, stage, kind, slice], of one action on a slice.
    forward_bytes, backward_bytes: [stage, slice], what leaves a stage forward and backward.
    """

    time_ns: NDArray[np.int64]
    forward_bytes: NDArray[np.int64]
    backward_bytes: NDArray[np.int64]

    @property
    def num_slices(self) -> int:
        return int(self.time_ns.shape[3])

    @classmethod
    def equal(cls, table: "CostTable", num_slices: int) -> "SliceCosts":
        """Every slice costs what the table says of one action."""

        def repeated(values: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.repeat(values[..., None], num_slices, axis=-1)

        return cls(*map(repeated, (table.time_ns, table.forward_bytes, table.backward_bytes)))


@dataclass(frozen=True, eq=False)
class CostTable:
    """Times in nanoseconds and sizes in bytes, all integers.

    time_ns: int64[worker, stage, kind], of one action; messages have none.
    forward_bytes: int64[stage], the activation that leaves a stage, per action.
    backward_bytes: int64[stage], the gradient that leaves a stage backward, per action.
    latency_ns: int64[worker, worker], from the row's worker to the column's.
    bytes_per_s: int64[worker, worker]; 0 means no limit.
    memory: bytes per stage and resource, and what each worker holds from the start.
    side_ns: time of an X action by its name.
    tied_ns: time of ``<s>REDUCE><t>`` by (s, t); pairs left out take ``time_ns`` of s.
    single_ns: times of single actions, in place of all of the above; messages have none.
    slices: where the slices of a microbatch differ, what stands in place of ``time_ns``,
        ``forward_bytes`` and ``backward_bytes`` for actions on a slice.
    all_reduce_ns: int64[worker, stage, kind], the part of ``time_ns`` in which an action by itself
        only waits for its tensor-parallel all-reduces; in a braid the other action runs then.
        None means no such part.
    """

    time_ns: NDArray[np.int64]
    forward_bytes: NDArray[np.int64]
    backward_bytes: NDArray[np.int64]
    latency_ns: NDArray[np.int64]
    bytes_per_s: NDArray[np.int64]
    memory: MemoryTable
    side_ns: Mapping[str, int] = field(default_factory=dict)
    tied_ns: Mapping[tuple[int, int], int] = field(default_factory=dict)
    single_ns: Mapping[Action, int] = field(default_factory=dict)
    slices: SliceCosts | None = None
    all_reduce_ns: NDArray[np.int64] | None = None

    @property
    def num_workers(self) -> int:
        return int(self.time_ns.shape[0])

    @property
    def num_stages(self) -> int:
        return int(self.time_ns.shape[1])

    def action_ns(self, worker: int, action: Action) -> int:
        """Time of one action of a worker, messages left out.

        Raises ProfileError for an X action whose name has no time.
        """
        if action in self.single_ns:
            return self.single_ns[action]
        if action.kind is Kind.X:
            self.require_side_times([action])
            return self.side_ns[str(action.name)]
        if action.peer is not None and action.kind is Kind.REDUCE:
            pair = (action.stage, action.peer)
            if pair in self.tied_ns:
                return self.tied_ns[pair]
        kind = KIND_INDEX[action.kind]
        if self.slices is not None and action.slice is not None:
            return int(self.slices.time_ns[worker, action.stage, kind, action.slice])
        return int(self.time_ns[worker, action.stage, kind])

    def together_ns(self, worker: int, actions: Sequence[Action]) -> int:
        """Time of an action of a worker, or of two that run interleaved; see ``cost.braid``."""
        times_ns = [self.action_ns(worker, action) for action in actions]
        if len(actions) == 1:
            return times_ns[0]
        waits_ns = [self.wait_ns(worker, action) for action in actions]
        return int(braid_ns(*times_ns, *waits_ns))

    def wait_ns(self, worker: int, action: Action) -> int:
        """The part of an action's time in which it only waits for its all-reduces."""
        if self.all_reduce_ns is None:
            return 0
        cell = worker, action.stage, KIND_INDEX[action.kind]
        return min(int(self.all_reduce_ns[cell]), self.action_ns(worker, action))

    def require_side_times(self, actions: Iterable[Action]) -> None:
        """Raise ProfileError that names all side work among the actions without a time."""
        names = {
            str(action.name)
            for action in actions
            if action.kind is Kind.X and action not in self.single_ns
        }
        unknown = sorted(names - self.side_ns.keys())
        if unknown:
            raise ProfileError("the costs are incomplete", list(map(_no_side_time, unknown)))

    def message_ns(self, source: int, target: int, action: Action) -> int:
        """Time to push what an action sends, or produces, from one worker to another.

        action: a SEND, or the F, B or I before it. The latency comes on top.
        """
        return transfer_ns(self.message_bytes(action), int(self.bytes_per_s[source, target]))

    def message_bytes(self, action: Action) -> int:
        """Size of what a SEND sends, or the F, B or I before it produces."""
        is_forward = action.kind in (Kind.SEND_F, Kind.F)
        if self.slices is not None and action.slice is not None:
            sizes = self.slices.forward_bytes if is_forward else self.slices.backward_bytes
            return int(sizes[action.stage, action.slice])
        return int((self.forward_bytes if is_forward else self.backward_bytes)[action.stage])

    def require_slices(self, num_slices: int) -> None:
        """Raise UsageError if these are the costs of another number of slices."""
        if self.slices is not None and self.slices.num_slices != num_slices:
            raise UsageError(_other_slices(self.slices.num_slices, num_slices))

    @classmethod
    def uniform(
        cls,
        num_workers: int,
        num_stages: int,
        *,
        forward_ns: int = 1,
        backward_ns: int | None = None,
        input_ns: int | None = None,
        weight_ns: int | None = None,
        latency_ns: int = 0,
        activation_bytes: int = 0,
    ) -> "CostTable":
        """Costs that are equal for all workers and stages: no STEP time, unlimited bandwidth.

        backward_ns, input_ns, weight_ns: of B, I and W with B = I + W. What is left out follows
        from the others; of B alone, W takes half (rounded down); of nothing, I = W = 1.
        latency_ns: of every message between two workers.
        activation_bytes: held per forward until its backward has ended.
        """
        backward, input_grad, weight_grad = _split_backward(backward_ns, input_ns, weight_ns)
        time_ns = {
            Kind.F: [forward_ns] * num_stages,
            Kind.B: [backward] * num_stages,
            Kind.I: [input_grad] * num_stages,
            Kind.W: [weight_grad] * num_stages,
            Kind.R: [forward_ns] * num_stages,
        }
        return cls.of_stages(
            num_workers,
            time_ns,
            latency_ns=latency_ns,
            activation_bytes=[activation_bytes] * num_stages,
        )

    @classmethod
    def of_stages(
        cls,
        num_workers: int,
        stage_ns: Mapping[Kind, Sequence[int]],
        *,
        latency_ns: int = 0,
        activation_bytes: Sequence[int] = (),
    ) -> "CostTable":
        """Costs per kind and stage on workers of equal speed: unlimited bandwidth.

        stage_ns: per kind, the time of one action of each stage; kinds left out take no time.
        latency_ns: of every message between two workers.
        activation_bytes: per stage, held per forward until its backward has ended; 0 if empty.
        """
        num_stages = len(next(iter(stage_ns.values())))
        time_ns = np.zeros((num_workers, num_stages, len(Kind)), dtype=np.int64)
        for kind, times in stage_ns.items():
            time_ns[:, :, KIND_INDEX[kind]] = times
        nothing = (0,) * num_stages
        per_stage = dict.fromkeys(Resource, nothing)
        per_stage[Resource.ACTIVATION] = tuple(activation_bytes) or nothing
        return cls(
            time_ns=time_ns,
            forward_bytes=np.zeros(num_stages, dtype=np.int64),
            backward_bytes=np.zeros(num_stages, dtype=np.int64),
            latency_ns=np.full((num_workers, num_workers), latency_ns, dtype=np.int64),
            bytes_per_s=np.zeros((num_workers, num_workers), dtype=np.int64),
            memory=MemoryTable(per_stage=per_stage, static_bytes=(0,) * num_workers),
        )


def _split_backward(
    backward_ns: int | None, input_ns: int | None, weight_ns: int | None
) -> tuple[int, int, int]:
    """Times of B, I and W, whichever of them are given."""
    if backward_ns is None:
        input_ns = 1 if input_ns is None else input_ns
        weight_ns = 1 if weight_ns is None else weight_ns
        return input_ns + weight_ns, input_ns, weight_ns
    if input_ns is None:
        weight_ns = backward_ns // 2 if weight_ns is None else weight_ns
        return backward_ns, max(0, backward_ns - weight_ns), weight_ns
    weight_ns = max(0, backward_ns - input_ns) if weight_ns is None else weight_ns
    return backward_ns, input_ns, weight_ns


def _other_slices(num_slices: int, wanted: int) -> str:
    return (
        f"the costs are those of {num_slices} slices, but the schedule cuts microbatches into "
        f"{wanted}; build the costs for this schedule"
    )


def _no_side_time(name: str) -> str:
    return (
        f"no time is known for the side work X:{name}; give it one in [[side_work]] of the plan's"
        " job, or from Python in side_ns of the costs"
    )
