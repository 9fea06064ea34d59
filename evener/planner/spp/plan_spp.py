"""SPP: order the devices, divide layers and devices into stages, let a list order microbatches.

Luo et al., "Efficient Pipeline Planning for Expedited Distributed DNN Training", INFOCOM 2022
(arXiv 2204.10562): recursive device ordering, pipeline partition and device mapping, pipeline
execution.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import accumulate, pairwise, permutations, product
from math import inf, lcm

import numpy as np

from evener.cost.network import all_reduce_ns, slowest, transfer_ns
from evener.cost.profile import LayerCost
from evener.errors import PlanInfeasible, ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.planner.bound import lower_bound
from evener.planner.bounds.instance import Instance
from evener.planner.candidate import Candidate, Evaluated
from evener.planner.fastest import Search, one_pipeline
from evener.planner.minimum_cut import Weights
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult
from evener.planner.spp.device_order import device_order
from evener.planner.spp.stages import Chain, Division, Loads, divisions
from evener.planner.stop import StoppingCriterion
from evener.schedules.list_scheduler import ListWorld, Priorities
from evener.spec.cluster import Link

WHOLE_BACKWARDS_FIRST = Priorities(split_backward=False)
"""A worker that is free takes the backward that can start, or else the forward."""


def plan_spp(
    problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
) -> PlanResult:
    """One pipeline over all devices in which a stage may stand on several of them.

    Devices stand in an order by recursive minimum cuts of their bandwidths.  For each number of
    stages, dynamic programming divides layers and devices so that the busiest device or link does
    least, the exchange of gradients between replicas included; replicas take microbatches in turn.
    A list scheduler orders the microbatches; the simulator says which number of stages is best,
    and which of the measured microbatch sizes.

    Raises PlanInfeasible if there are more devices than layers and microbatches keep busy, or if
    nothing fits into memory.
    """
    del seed  # nothing here is random
    start_s = time.monotonic()
    mappings = [
        _Mapping(one_pipeline(problem, "one_f_one_b", size)) for size in problem.microbatch_sizes
    ]
    bound_ns = lower_bound(*(each.instance for each in mappings)).step_ns
    trials = [
        (each.candidate, partial(each.evaluate, division))
        for each in mappings
        for division in divisions(each.chain)
    ]
    if not trials:
        raise PlanInfeasible("SPP is impossible", [_too_many_devices(problem)])
    return Search("no plan of SPP fits", start_s, bound_ns, stop, progress).fastest(trials)


@dataclass(frozen=True)
class _Mapping:
    """One microbatch size: what layers cost on the devices in their order."""

    candidate: Candidate

    @property
    def instance(self) -> Instance:
        """For the lower bounds: every stage may stand on all devices."""
        num_workers = self.candidate.shape.schedule.num_workers
        return replace(self.candidate.instance, stage_copies=num_workers)

    @property
    def chain(self) -> Chain:
        sizes = self.candidate.shape.schedule
        return Chain(
            self.candidate.problem.num_layers,
            sizes.num_workers,
            min(sizes.num_workers, sizes.num_microbatches),
            cache(self._load_ns),
            cache(self._channel_ns),
        )

    @cached_property
    def order(self) -> list[int]:
        """Workers in the order in which they stand in the pipeline."""
        num_workers = self.candidate.shape.schedule.num_workers
        largest = max(cost.output_bytes for cost in self._layers)
        weights: Weights = np.zeros((num_workers, num_workers), dtype=np.int64)
        for (source, target), link in self._links.items():
            message_ns = link.latency_ns + transfer_ns(largest, link.bytes_per_s)
            weights[source, target] = _WEIGHT // (1 + message_ns)
        return device_order(np.minimum(weights, weights.T))

    def evaluate(self, division: Division) -> Evaluated | None:
        """None if memory caps leave no order."""
        sizes, partition = self.candidate.shape.schedule, division.partition
        groups = self._groups(division.num_replicas)
        microbatches = range(sizes.num_microbatches)
        workers = [[group[m % len(group)] for m in microbatches] for group in groups]
        held: list[list[Action]] = [[] for _ in range(sizes.num_workers)]
        for stage, row in enumerate(workers):
            for microbatch, worker in enumerate(row):
                held[worker].append(Action(stage, Kind.F, microbatch))
        holders = Schedule("spp", len(partition), len(microbatches), tuple(map(tuple, held)))
        try:
            world = ListWorld(
                self.candidate.times_on(holders, partition),
                num_workers=sizes.num_workers,
                num_microbatches=sizes.num_microbatches,
                workers=workers,
            )
        except ScheduleError:
            return None
        return self.candidate.judge(partition, world.run(WHOLE_BACKWARDS_FIRST).schedule("spp"))

    def _groups(self, num_replicas: Sequence[int]) -> list[list[int]]:
        """Per stage, its workers."""
        ends = [0, *accumulate(num_replicas)]
        return [sorted(self.order[first:end]) for first, end in pairwise(ends)]

    def _load_ns(self, first: int, end: int) -> Loads:
        """Microbatches of the busiest of these devices, and the sum of gradients over all."""
        group = self.order[first:end]
        problem, shape = self.candidate.problem, self.candidate.shape
        types = {problem.device_types[worker] for worker in group}
        rows = [problem.layer_costs(each, shape.microbatch_size) for each in sorted(types)]
        work_ns = np.array(
            [[cost.forward_ns + cost.backward_ns for cost in row] for row in rows]
        ).max(axis=0)
        share = -(-shape.schedule.num_microbatches // len(group))
        load_ns = share * _ranges(work_ns).astype(np.float64)
        if len(group) > 1:
            link = slowest(self._links[pair] for pair in permutations(group, 2))
            num_bytes = _ranges(np.array([cost.parameter_bytes for cost in rows[0]]))
            for cell in zip(*np.nonzero(num_bytes > 0), strict=True):
                load_ns[cell] += all_reduce_ns(int(num_bytes[cell]), len(group), link)
        cuts = np.arange(problem.num_layers + 1)
        load_ns[cuts[:, None] >= cuts] = inf
        return load_ns

    def _channel_ns(self, first: int, border: int, end: int) -> Loads:
        """Both ways' messages on each of the links that replicas use in turn."""
        before, behind = self.order[first:border], self.order[border:end]
        link = slowest(self._links[pair] for pair in product(before, behind))
        back = slowest(self._links[pair] for pair in product(behind, before))
        num_links = lcm(len(before), len(behind))
        share = -(-self.candidate.shape.schedule.num_microbatches // num_links)
        layers = self._layers
        inner = [
            share
            * max(
                transfer_ns(layers[cut - 1].output_bytes, link.bytes_per_s),
                transfer_ns(layers[cut].input_bytes, back.bytes_per_s),
            )
            for cut in range(1, len(layers))
        ]
        return np.array([inf, *inner, inf])

    @property
    def _layers(self) -> list[LayerCost]:
        """Where only sizes matter."""
        problem = self.candidate.problem
        return problem.layer_costs(problem.device_types[0], self.candidate.shape.microbatch_size)

    @cached_property
    def _links(self) -> dict[tuple[int, int], Link]:
        return self.candidate.links(self.candidate.shape.schedule.num_workers)


_WEIGHT = 10**15


def _ranges(values: np.ndarray) -> np.ndarray:
    """[first, end], sum of values[first:end]."""
    until = np.concatenate(([0], np.cumsum(values)))
    return until[None, :] - until[:, None]


def _too_many_devices(problem: Problem) -> str:
    most = problem.num_layers * problem.job.num_sequences // problem.microbatch_sizes[0]
    return (
        f"every device is to hold a stage and to run a microbatch of it, which {most} can; the "
        f"cluster has {len(problem.cluster.devices)}: use fewer, or the planner sweep"
    )
