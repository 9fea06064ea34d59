"""The baseline of a large training run: a regular grid of equal pipelines of equal layers.

Narayanan et al., Megatron-LM, SC 2021: pipelines side by side, equal numbers of layers per stage,
1F1B or interleaved 1F1B, the fastest that fits into memory.  Piper (Dash and Wang, 2026, arXiv
2605.05049) chooses from the same grid by a model of memory and time, and besides the width of its
expert parallelism, which there is none of here.
"""

import time
from collections.abc import Iterator
from functools import partial

from evener.errors import PlanInfeasible
from evener.planner.bound import lower_bound
from evener.planner.candidate import Candidate, Shape
from evener.planner.fastest import Search
from evener.planner.partition.contiguous import uniform_partition
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult
from evener.planner.stop import StoppingCriterion
from evener.planner.sweep import replica_counts
from evener.schedules import SCHEDULES, ScheduleShape

_MOST_CHUNKS = 4


def plan_megatron(
    problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
) -> PlanResult:
    """Each number of equal pipelines, with 1 to 4 stages per worker and each microbatch size.

    Interleaved 1F1B where there are several stages per worker and pipelines of several workers.

    Raises PlanInfeasible if no pipeline has a layer for each of its workers, or if none fits into
    memory.
    """
    del seed  # nothing here is random
    start_s = time.monotonic()
    candidates = [
        Candidate(problem, shape)
        for shape in _shapes(problem)
        if shape.schedule.num_stages <= problem.num_layers
    ]
    if not candidates:
        raise PlanInfeasible("a uniform grid is impossible", [_too_few_layers(problem)])
    bound_ns = lower_bound(*(each.instance for each in candidates)).step_ns
    trials = [
        (
            each,
            partial(
                each.evaluate,
                uniform_partition(problem.num_layers, each.shape.schedule.num_stages),
            ),
        )
        for each in candidates
    ]
    return Search("no uniform grid fits", start_s, bound_ns, stop, progress).fastest(trials)


def _shapes(problem: Problem) -> Iterator[Shape]:
    for size in problem.microbatch_sizes:
        for replicas in replica_counts(problem, size):
            num_workers = len(problem.cluster.devices) // replicas
            num_microbatches = problem.job.num_sequences // size // replicas
            for chunks in range(1, _MOST_CHUNKS + 1 if num_workers > 1 else 2):
                name = "one_f_one_b" if chunks == 1 else "interleaved_one_f_one_b"
                sizes = ScheduleShape(num_workers, num_microbatches, chunks)
                yield Shape(SCHEDULES[name], sizes, size, replicas)


def _too_few_layers(problem: Problem) -> str:
    return (
        f"the cluster has {len(problem.cluster.devices)} devices, and the global batch of "
        f"{problem.job.num_sequences} sequences is not shared evenly by pipelines of at most "
        f"{problem.num_layers} workers, the number of layers; use fewer devices, another batch or "
        "the planner sweep"
    )
