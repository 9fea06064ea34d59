"""All ways to use a cluster as pipelines side by side."""

from collections.abc import Iterator

from evener.planner.candidate import Candidate, Shape
from evener.planner.problem import Problem
from evener.planner.sweep import replica_counts
from evener.schedules import ScheduleShape
from evener.schedules.adaptis_greedy import ADAPTIS_GREEDY


def chains(problem: Problem, *, one_pipeline: bool = False) -> Iterator[Candidate]:
    """Every microbatch size with every number of replicas, or with one."""
    num_devices = len(problem.cluster.devices)
    for size in problem.microbatch_sizes:
        for replicas in [1] if one_pipeline else replica_counts(problem, size):
            num_microbatches = problem.job.num_sequences // size // replicas
            sizes = ScheduleShape(num_devices // replicas, num_microbatches)
            yield Candidate(problem, Shape(ADAPTIS_GREEDY, sizes, size, replicas))
