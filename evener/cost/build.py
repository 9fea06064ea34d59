"""From what was measured, and who holds what, to what every action costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, permutations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evener.cost.host_copies import with_host_copies
from evener.cost.memory import model_state_bytes, unit_bytes, working_bytes
from evener.cost.network import all_reduce_ns, broadcast_ns, slowest
from evener.cost.profile import LayerCost, LayerKey, Profile
from evener.cost.table import KIND_INDEX, CostTable
from evener.errors import ProfileError, UsageError
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.spec.cluster import ClusterSpec, Link
from evener.spec.fields import DTYPE_BYTES
from evener.spec.job import JobSpec

Stage: TypeAlias = tuple[LayerCost, ...]

# Each worker contributes one sum of squares in float64.
_NORM_BYTES = 8

_WITHOUT_PRICE = frozenset({Kind.GATHER, Kind.RELEASE})


def cost_table(
    schedule: Schedule,
    *,
    layers: Sequence[str],
    partition: Sequence[tuple[int, int]],
    devices: Sequence[Sequence[str]],
    profile: Profile,
    cluster: ClusterSpec,
    job: JobSpec,
    tied: Sequence[tuple[int, int]] = (),
) -> CostTable:
    """Price the actions of a schedule.

    layers: per layer of the model, the name under which the profile has it.
    partition: per stage, the half-open range of its layers. devices: per worker, its device.
    job: with its microbatch size decided.
    tied: pairs of stages s < t that share the parameters of the first layer of s.

    A stage takes the sum of its layers, and each action the profile's overhead besides.  Where the
    job recomputes and the schedule has no R, the backward takes the recomputation along.  Cells
    that are offloaded go whole; ``with_host_copies`` changes that.

    Raises ProfileError that names all layers that were not measured, UsageError if the parts do
    not fit together or nothing is known about some kind of action.
    """
    _require(schedule, layers=layers, partition=partition, devices=devices, tied=tied)
    _require_measured_for(job, profile)
    stages = [layers[first:last] for first, last in partition]
    names = [name for (name,) in devices]
    types = [cluster.device(name).type for name in names]
    costs = _Prices(
        schedule=schedule,
        types=types,
        stages_on=_stages_on(types, stages, profile, job),
        links=links_of(names, types, profile, cluster),
        profile=profile,
        job=job,
        tied=tuple(tied),
    ).table()
    if Kind.OFFLOAD not in schedule.kinds:
        return costs
    return with_host_copies(costs, schedule, links=cluster.host_links(names))


@dataclass(frozen=True)
class _Prices:
    """What one table is computed from.

    types: per worker, the type of its device. stages_on: per type, each stage as its layers.
    links: by (source worker, target worker).
    """

    schedule: Schedule
    types: Sequence[str]
    stages_on: Mapping[str, Sequence[Stage]]
    links: Mapping[tuple[int, int], Link]
    profile: Profile
    job: JobSpec
    tied: tuple[tuple[int, int], ...]

    def table(self) -> CostTable:
        num_workers = len(self.types)
        link = np.zeros((2, num_workers, num_workers), dtype=np.int64)
        for (source, target), (latency_ns, bytes_per_s) in self.links.items():
            link[:, source, target] = latency_ns, bytes_per_s
        return CostTable(
            time_ns=self._time_ns(),
            forward_bytes=_int64([stage[-1].output_bytes for stage in self._stages]),
            backward_bytes=_int64([stage[0].input_bytes for stage in self._stages]),
            latency_ns=link[0],
            bytes_per_s=link[1],
            memory=self._memory(),
            side_ns={work.name: work.time_ns for work in self.job.side_work},
            tied_ns={pair: self._tied_reduce_ns(*pair) for pair in self.tied},
        )

    @property
    def _stages(self) -> Sequence[Stage]:
        """The stages where only their sizes matter, which are those of every type."""
        return self.stages_on[self.types[0]]

    @property
    def _recomputes_inside_backward(self) -> bool:
        return self.job.recompute == "full" and Kind.R not in self.schedule.kinds

    def _time_ns(self) -> NDArray[np.int64]:
        num_workers, num_stages = len(self.types), len(self._stages)
        time_ns = np.zeros((num_workers, num_stages, len(Kind)), dtype=np.int64)
        for device_type, stages in self.stages_on.items():
            workers = [worker for worker, own in enumerate(self.types) if own == device_type]
            for number, stage in enumerate(stages):
                for kind, of_stage_ns in self._compute_ns(stage).items():
                    time_ns[workers, number, KIND_INDEX[kind]] = of_stage_ns
        reduce_ns = [self._reduce_ns(number) for number in range(num_stages)]
        time_ns[:, :, KIND_INDEX[Kind.REDUCE]] = reduce_ns
        for number in range(num_stages):
            time_ns[:, number, KIND_INDEX[Kind.SHARE]] = self._share_ns(number)
            for worker in self.schedule.workers_of_stage[number]:
                if self._is_sent_weights(worker, number):
                    time_ns[worker, number, KIND_INDEX[Kind.STEP]] = self.profile.overhead_ns
        everyone = range(num_workers)
        time_ns[:, :, KIND_INDEX[Kind.NORM]] = self._all_reduce_ns(_NORM_BYTES, everyone)
        return time_ns

    def _compute_ns(self, stage: Stage) -> dict[Kind, int]:
        recompute_ns = sum(cost.recompute_ns for cost in stage)
        besides_ns = recompute_ns if self._recomputes_inside_backward else 0
        step_ns = self.profile.step_ns_per_parameter_byte * _parameter_bytes(stage)
        times_ns = {
            Kind.F: sum(cost.forward_ns for cost in stage),
            Kind.B: sum(cost.backward_ns for cost in stage) + besides_ns,
            Kind.I: sum(cost.input_grad_ns for cost in stage) + besides_ns,
            Kind.W: sum(cost.weight_grad_ns for cost in stage),
            Kind.R: recompute_ns,
            Kind.STEP: round(step_ns),
        }
        return {kind: own_ns + self.profile.overhead_ns for kind, own_ns in times_ns.items()}

    def _reduce_ns(self, number: int) -> int:
        """All-reduce of the gradients that the stage shares with no other stage."""
        tied_bytes = sum(self._tied_bytes(pair[0]) for pair in self.tied if number in pair)
        own_bytes = max(0, _parameter_bytes(self._stages[number]) - tied_bytes)
        group = self.schedule.workers_of_stage[number]
        return self._all_reduce_ns(self._gradient_bytes(own_bytes), group)

    def _share_ns(self, number: int) -> int:
        """Broadcast of a stage's parameters to those that hold it."""
        group = self.schedule.workers_of_stage[number]
        own_bytes = _parameter_bytes(self._stages[number])
        num_bytes = own_bytes * DTYPE_BYTES[self.job.dtypes.parameters]
        link = slowest(self.links[pair] for pair in permutations(group, 2))
        return broadcast_ns(num_bytes // DTYPE_BYTES[self.profile.dtype], len(group), link)

    def _tied_reduce_ns(self, first: int, second: int) -> int:
        holders = (self.schedule.workers_of_stage[stage] for stage in (first, second))
        num_bytes = self._gradient_bytes(self._tied_bytes(first))
        return self._all_reduce_ns(num_bytes, sorted(set(chain(*holders))))

    def _tied_bytes(self, first: int) -> int:
        return self._stages[first][0].parameter_bytes

    def _gradient_bytes(self, parameter_bytes: int) -> int:
        formats = self.job.dtypes
        return parameter_bytes * DTYPE_BYTES[formats.gradients] // DTYPE_BYTES[self.profile.dtype]

    def _all_reduce_ns(self, num_bytes: int, group: Sequence[int]) -> int:
        link = slowest(self.links[pair] for pair in permutations(group, 2))
        return all_reduce_ns(num_bytes, len(group), link)

    def _memory(self) -> MemoryTable:
        units = [
            unit_bytes(stage, recomputed=self._recomputes_inside_backward) for stage in self._stages
        ]
        holds = self.schedule.stages_of_worker
        return MemoryTable(
            per_stage={resource: tuple(unit[resource] for unit in units) for resource in Resource},
            static_bytes=tuple(
                sum(self._state_bytes(worker, number) for number in stages)
                + working_bytes(
                    [self._stages[number] for number in stages],
                    recomputed=self._recomputes_inside_backward,
                )
                for worker, stages in enumerate(holds)
            ),
        )

    def _state_bytes(self, worker: int, number: int) -> int:
        updates = self.schedule.updates
        return model_state_bytes(
            _parameter_bytes(self._stages[number]),
            self.profile.dtype,
            self.job,
            updates=not self._is_sent_weights(worker, number),
            num_versions=1 + updates.staleness if updates.stashed else 1,
        )

    def _is_sent_weights(self, worker: int, number: int) -> bool:
        """Whether another worker updates the stage for this one, as asynchronous schedules do."""
        holders = self.schedule.workers_of_stage[number]
        return self.schedule.updates.number > 1 and worker != holders[0]


def _int64(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _parameter_bytes(stage: Stage) -> int:
    return sum(cost.parameter_bytes for cost in stage)


def _stages_on(
    types: Iterable[str], stages: Sequence[Sequence[str]], profile: Profile, job: JobSpec
) -> dict[str, list[Stage]]:
    """Per type of device, the measured layers of each stage. All that is missing is named."""
    assert job.microbatch_size != "auto", "checked before"
    keys = {
        device_type: [
            [
                LayerKey(layer, device_type, job.microbatch_size, job.sequence_length)
                for layer in stage
            ]
            for stage in stages
        ]
        for device_type in dict.fromkeys(types)
    }
    costs = iter(profile.costs_of([key for on in keys.values() for stage in on for key in stage]))
    return {
        device_type: [tuple(islice(costs, len(stage))) for stage in on]
        for device_type, on in keys.items()
    }


def links_of(
    devices: Sequence[str], types: Sequence[str], profile: Profile, cluster: ClusterSpec
) -> dict[tuple[int, int], Link]:
    """What was measured between two devices, or else between their types, or else is described."""
    measured = {
        (link.from_device, link.to_device): Link(link.latency_ns, link.bytes_per_s)
        for link in profile.links
    }
    links = {}
    for source, target in permutations(range(len(devices)), 2):
        names = (devices[source], devices[target])
        link = measured.get(names) or measured.get((types[source], types[target]))
        links[source, target] = link or cluster.link(*names)
    return links


def _require(
    schedule: Schedule,
    *,
    layers: Sequence[str],
    partition: Sequence[tuple[int, int]],
    devices: Sequence[Sequence[str]],
    tied: Sequence[tuple[int, int]],
) -> None:
    wrong = []
    if len(partition) != schedule.num_stages:
        wrong.append(_other_number("stages", len(partition), schedule.num_stages))
    if len(devices) != schedule.num_workers:
        wrong.append(_other_number("workers", len(devices), schedule.num_workers))
    wrong += [
        _not_one_device(worker, names) for worker, names in enumerate(devices) if len(names) != 1
    ]
    wrong += [
        _no_layers(stage, first, last, len(layers))
        for stage, (first, last) in enumerate(partition)
        if not 0 <= first < last <= len(layers)
    ]
    wrong += [
        f"stages {pair[0]} and {pair[1]} cannot share parameters: there are {len(partition)} stages"
        for pair in tied
        if not 0 <= pair[0] < pair[1] < len(partition)
    ]
    wrong += [
        f"no cost is known for {kind} actions; write the table yourself"
        for kind in sorted(schedule.kinds & _WITHOUT_PRICE)
    ]
    if wrong:
        raise UsageError("the costs of this schedule cannot be computed", wrong)


def _require_measured_for(job: JobSpec, profile: Profile) -> None:
    if job.microbatch_size == "auto":
        raise UsageError('the job leaves its microbatch size to the planner ("auto"); decide it')
    if profile.dtype != job.dtypes.activations:
        raise ProfileError(_other_dtype(job, profile))


def _other_number(what: str, given: int, wanted: int) -> str:
    return f"{given} {what} are described, but the schedule has {wanted}"


def _not_one_device(worker: int, names: Sequence[str]) -> str:
    return f"worker {worker} has {len(names)} devices; costs are known for one device per worker"


def _no_layers(stage: int, first: int, last: int, num_layers: int) -> str:
    return f"stage {stage} has layers {first} to {last} of {num_layers}; give it at least one"


def _other_dtype(job: JobSpec, profile: Profile) -> str:
    return (
        f"the profile was measured in {profile.dtype}, but the job computes in "
        f"{job.dtypes.activations}; measure with the job's number formats"
    )
