"""What a planner is asked: model, cluster, job and profile, checked to belong together."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from evener.cost.build import links_of
from evener.cost.memory import model_state_bytes
from evener.cost.profile import LayerCost, LayerKey, Profile
from evener.cost.slices import least_shares
from evener.cost.spread_head import cannot_spread, without_projection
from evener.errors import PlanInfeasible, ProfileError, UsageError
from evener.ir.freezing import WHOLE_PPM
from evener.planner.bounds.instance import ChainTimes, Instance, Memory, Times
from evener.planner.result import PlanResult
from evener.planner.stop import StoppingCriterion
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

MOST_FORWARDS = 20_000
"""Of one schedule, where the numbers of its microbatches or updates are free to choose."""

Progress = Callable[[int, int, int | None], None]
"""Told (candidates done, candidates in all, best step so far in nanoseconds)."""


def tell_nobody(done: int, total: int, best_ns: int | None) -> None:
    """No progress is shown."""
    del done, total, best_ns


@dataclass(frozen=True)
class Problem:
    """One planning problem.

    Raises ProfileError if the profile is of another model or has none of the job's microbatch
    sizes, UsageError if the job offloads and the link to a host is not known, or if its updates
    between two flushes take more than ``MOST_FORWARDS``, PlanInfeasible if no microbatch size fits
    the job.
    """

    model: ModelSpec
    cluster: ClusterSpec
    job: JobSpec
    profile: Profile

    def __post_init__(self) -> None:
        if self.profile.fingerprint != self.model.fingerprint():
            raise ProfileError(_profile_of_another_model(self.profile, self.model))
        if not self.microbatch_sizes:
            raise PlanInfeasible("no microbatch size can be planned", [_no_size(self)])
        self._require_few_updates()
        reasons = cannot_spread(self.model) if self.job.spread_head else []
        if reasons:
            raise PlanInfeasible("the head cannot be spread over workers", reasons)
        if self.job.offload:
            self.cluster.host_links(self.cluster.devices)

    def _require_few_updates(self) -> None:
        """Between two flushes, in the longest pipeline with the smallest microbatches."""
        num_updates = self.job.num_updates
        num_microbatches = self.job.num_sequences // self.microbatch_sizes[0]
        num_stages = min(len(self.cluster.devices), self.num_layers)
        if num_updates > 1 and num_updates * num_microbatches * num_stages > MOST_FORWARDS:
            raise UsageError(_too_many_updates(num_updates, num_microbatches, num_stages))

    @property
    def num_layers(self) -> int:
        return len(self.model.layers)

    @cached_property
    def layer_configs(self) -> tuple[str, ...]:
        """Per layer, the name under which the profile has its costs."""
        return tuple(layer.config for layer in self.model.layers)

    @cached_property
    def measured_sizes(self) -> tuple[int, ...]:
        """Microbatch sizes that the profile has at the job's sequence length."""
        length = self.job.sequence_length
        return tuple(
            sorted({c.microbatch_size for c in self.profile.layers if c.sequence_length == length})
        )

    @cached_property
    def microbatch_sizes(self) -> tuple[int, ...]:
        """Measured sizes that the job allows and that divide its global batch."""
        wanted = self.job.microbatch_size
        return tuple(
            size
            for size in self.measured_sizes
            if wanted in ("auto", size) and self.job.num_sequences % size == 0
        )

    @cached_property
    def message_ns(self) -> int:
        """The least latency between two devices."""
        links = links_of(self.cluster.devices, self.device_types, self.profile, self.cluster)
        return min((link.latency_ns for link in links.values()), default=0)

    def job_with(self, microbatch_size: int) -> JobSpec:
        """The job with its microbatch size decided."""
        return self.job.model_copy(update={"microbatch_size": microbatch_size})

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Per device of the cluster, in order, its type."""
        return tuple(self.cluster.device(name).type for name in self.cluster.devices)

    @cached_property
    def cap_bytes(self) -> tuple[int, ...]:
        """Per device, how much of its memory the job may use."""
        devices = map(self.cluster.device, self.cluster.devices)
        return tuple(self.job.memory_limit_bytes(device.spec.memory_bytes) for device in devices)

    @cached_property
    def _chain_profile(self) -> Profile:
        """Without what of a spread head is in no stage of the chain.

        As parts of it are on every worker, no bound counts it: whoever computes its part of a
        microbatch only adds to the time of the chain.
        """
        if self.job.spread_head:
            return without_projection(self.profile, self.model)
        return self.profile

    def layer_costs(self, device_type: str, microbatch_size: int) -> list[LayerCost]:
        """Per layer, its costs in a stage of the chain.

        Raises ProfileError that names all that were not measured.
        """
        length = self.job.sequence_length
        return self._chain_profile.costs_of(
            [LayerKey(c, device_type, microbatch_size, length) for c in self.layer_configs]
        )

    def backward_ns(self, cost: LayerCost, *, frozen_ppm: int = 0) -> int:
        """The least that the backward of a layer costs a worker, recomputation included.

        frozen_ppm: share of its parameters that is frozen.
        """
        saved_ns = max(0, cost.backward_ns - cost.input_grad_ns) * frozen_ppm
        saved_split_ns = cost.weight_grad_ns * frozen_ppm
        whole_ns = cost.backward_ns - -(-saved_ns // WHOLE_PPM)
        split_ns = cost.input_grad_ns + cost.weight_grad_ns - -(-saved_split_ns // WHOLE_PPM)
        return min(whole_ns, split_ns) + self._recompute_ns(cost)

    @property
    def max_share_ppm(self) -> int:
        """Cap on the mean frozen share of a stage."""
        return 0 if self.job.freeze is None else self.job.freeze.max_share_ppm

    def chain_times(self, microbatch_size: int, *, frozen_ppm: int = 0) -> ChainTimes:
        """Per layer, the least time on any device type of the cluster, without recomputation.

        That may run whenever its worker has nothing else to do, so that no way is longer for it.

        frozen_ppm: mean share of its parameters that is frozen.
        """
        rows = []
        for device_type in sorted(set(self.device_types)):
            costs = self.layer_costs(device_type, microbatch_size)
            forward_ns = np.array([cost.forward_ns for cost in costs], dtype=np.int64)
            input_ns = np.array(
                [min(cost.input_grad_ns, cost.backward_ns) for cost in costs], dtype=np.int64
            )
            again_ns = np.array([self._recompute_ns(cost) for cost in costs], dtype=np.int64)
            work_ns = self._work_ns(device_type, microbatch_size, frozen_ppm) - again_ns
            rows.append((forward_ns, input_ns, work_ns, work_ns - forward_ns - input_ns))
        return ChainTimes(*np.array(rows).min(axis=0))

    def slice_way_ns(self, microbatch_size: int, num_slices: int) -> Times | None:
        """Per layer, the least that the longest slice takes forward and back; None if there is one.

        num_slices: the most into which a microbatch is cut.
        """
        if num_slices == 1:
            return None
        num_tokens = self.job.sequence_length
        longest = -(-num_tokens // num_slices)
        times = self.chain_times(microbatch_size)
        shares = {
            name: least_shares(self.model, spec, num_tokens=longest, of_tokens=num_tokens)
            for name, spec in self.model.layer_configs.items()
        }
        forward, backward = zip(*(shares[name] for name in self.layer_configs), strict=True)
        return np.array(
            [
                int(forward_ns) * there.numerator // there.denominator
                + int(input_ns) * back.numerator // back.denominator
                for forward_ns, input_ns, there, back in zip(
                    times.forward_ns, times.input_ns, forward, backward, strict=True
                )
            ],
            dtype=np.int64,
        )

    def instance(
        self,
        microbatch_size: int,
        *,
        num_workers: int,
        num_microbatches: int,
        offloads: bool = False,
    ) -> Instance:
        """What lower bounds need to know of a pipeline on the first devices of the cluster.

        offloads: whether activations may leave the worker; then, as where they are recomputed,
            memory does not limit how many microbatches are under way.
        """
        types, frozen_ppm = self.device_types[:num_workers], self.max_share_ppm
        holds_all = self.job.recompute == "none" and not offloads
        work_ns = [self._work_ns(each, microbatch_size, frozen_ppm) for each in types]
        is_uneven = len(set(types)) > 1 or self.job.recompute == "full"
        return Instance(
            self.chain_times(microbatch_size, frozen_ppm=frozen_ppm),
            num_workers,
            num_microbatches,
            is_frozen=frozen_ppm > 0,
            message_ns=self.message_ns,
            worker_work_ns=np.array(work_ns) if is_uneven else None,
            memory=self._memory(microbatch_size, num_workers) if holds_all else None,
        )

    def _memory(self, microbatch_size: int, num_workers: int) -> Memory:
        rows = [self.layer_costs(each, microbatch_size) for each in sorted(set(self.device_types))]
        held_bytes = np.array([[cost.activation_bytes for cost in row] for row in rows])
        shared = self.model.tied_layers
        always_bytes = sum(
            model_state_bytes(cost.parameter_bytes, self.profile.dtype, self.job)
            for layer, cost in enumerate(rows[0])
            if shared is None or layer != shared[1]  # its matrix is the embedding's
        )
        return Memory(held_bytes.min(axis=0), sum(self.cap_bytes[:num_workers]) - always_bytes)

    def _work_ns(self, device_type: str, microbatch_size: int, frozen_ppm: int) -> Times:
        """Per layer, the least that forward and backward cost a worker of the type."""
        return np.array(
            [
                cost.forward_ns + self.backward_ns(cost, frozen_ppm=frozen_ppm)
                for cost in self.layer_costs(device_type, microbatch_size)
            ],
            dtype=np.int64,
        )

    def _recompute_ns(self, cost: LayerCost) -> int:
        return cost.recompute_ns if self.job.recompute == "full" else 0


class Planner(Protocol):
    """From a problem to a plan. Same seed, same answer, unless ``stop`` ends it early.

    Raises PlanInfeasible if no plan that it knows of respects the limits.
    """

    def __call__(
        self, problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
    ) -> PlanResult: ...


def _profile_of_another_model(profile: Profile, model: ModelSpec) -> str:
    return (
        f'the profile is of model "{profile.model}" ({profile.fingerprint[:12]}), but this is '
        f'model "{model.name}" ({model.fingerprint()[:12]}); measure it with `evener measure`'
    )


def _too_many_updates(num_updates: int, num_microbatches: int, num_stages: int) -> str:
    most = MOST_FORWARDS // (num_microbatches * num_stages)
    way_out = f"{most} updates_per_flush at most" if most else "asynchronous = false"
    return (
        f"{num_updates} updates between two flushes times {num_microbatches} microbatches times "
        f"{num_stages} stages is more than {MOST_FORWARDS:,} forwards for each schedule; give the "
        f"job {way_out}"
    )


def _no_size(problem: Problem) -> str:
    job = problem.job
    return (
        f"the profile has microbatch sizes {list(problem.measured_sizes)} at sequence length "
        f"{job.sequence_length}; the job asks for microbatch_size = {job.microbatch_size} and a "
        f"global batch of {job.num_sequences} sequences, which the size must divide; measure "
        "another size or change the job"
    )
