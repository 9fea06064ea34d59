"""A planning problem as slicers see it."""

from collections import Counter
from functools import cache

import numpy as np
from numpy.typing import NDArray

from evener.cost.flops import SliceFlops, slice_flops
from evener.planner.problem import Problem
from evener.planner.slicing.registry import SLICERS
from evener.planner.slicing.work import SliceWork
from evener.schedules import ScheduleShape


def slice_tokens(
    problem: Problem, shape: ScheduleShape, slicer: str, *, microbatch_size: int
) -> tuple[int, ...]:
    """Tokens of each slice, at most ``shape.num_slices``, for a pipeline of equal stages.

    slicer: a name in ``SLICERS``.
    """
    work = _slice_work(problem, shape, microbatch_size)
    return SLICERS[slicer](work, shape.num_slices)


def _slice_work(problem: Problem, shape: ScheduleShape, microbatch_size: int) -> SliceWork:
    model, num_tokens = problem.model, problem.job.sequence_length
    num_layers = Counter(problem.layer_configs)
    costs = problem.layer_costs(problem.device_types[0], microbatch_size)
    time_ns = {
        name: cost.forward_ns + problem.backward_ns(cost)
        for name, cost in zip(problem.layer_configs, costs, strict=True)
    }

    @cache
    def before(name: str, end: int) -> int:
        spec = model.layer_configs[name]
        found: SliceFlops = slice_flops(model, spec, first_token=0, num_tokens=end)
        # Layers of which nothing is known cost the same for every token.
        return found.matrices + found.products or end

    def flops(first: int, tokens: int) -> int:
        return sum(
            count * (before(name, first + tokens) - before(name, first))
            for name, count in num_layers.items()
        )

    def latency_ns(first: int, tokens: int) -> int:
        shared_ns = sum(
            count
            * time_ns[name]
            * (before(name, first + tokens) - before(name, first))
            // before(name, num_tokens)
            for name, count in num_layers.items()
        )
        return shared_ns // shape.num_stages + 2 * problem.profile.overhead_ns

    return SliceWork(
        num_tokens=num_tokens,
        num_stages=shape.num_stages,
        num_microbatches=shape.num_microbatches,
        flops=flops,
        latency_ns=latency_ns,
        measured_ns=_measured_ns(problem, shape, microbatch_size),
    )


def _measured_ns(
    problem: Problem, shape: ScheduleShape, microbatch_size: int
) -> NDArray[np.int64] | None:
    """On one of equal stages, with what an action costs besides, as in ``latency_ns``."""
    found = problem.profile.slice_latency(
        problem.device_types[0],
        microbatch_size=microbatch_size,
        sequence_length=problem.job.sequence_length,
    )
    if found is None:
        return None
    num_parts = len(found.latency_ns)
    table = np.zeros((num_parts + 1, num_parts + 1), dtype=np.int64)
    for first, row in enumerate(found.latency_ns):
        table[first, first + 1 :] = row
    table[np.triu_indices(num_parts + 1, 1)] //= shape.num_stages
    table[np.triu_indices(num_parts + 1, 1)] += 2 * problem.profile.overhead_ns
    return table
