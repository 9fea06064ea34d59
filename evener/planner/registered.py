"""What the registered schedules make of a problem, to start from and to be better than."""

from collections.abc import Iterator

from evener.errors import ScheduleError
from evener.planner.candidate import Candidate, Evaluated, Shape
from evener.planner.problem import Problem
from evener.planner.sweep import balanced
from evener.schedules import SCHEDULES, ScheduleShape

_CHUNKS = (1, 2, 4)


def registered_plans(
    problem: Problem, *, microbatch_size: int, replicas: int
) -> Iterator[Evaluated]:
    """With the most even partition, those that fit into memory and hold every stage once."""
    for candidate in registered_candidates(
        problem, microbatch_size=microbatch_size, replicas=replicas
    ):
        found = _fitting(candidate)
        if found is not None:
            yield found


def registered_candidates(
    problem: Problem, *, microbatch_size: int, replicas: int
) -> Iterator[Candidate]:
    """Of whole microbatches, with every stage held once, with up to four stages per worker."""
    num_workers = len(problem.cluster.devices) // replicas
    num_microbatches = problem.job.num_sequences // microbatch_size // replicas
    for entry in SCHEDULES.values():
        if entry.slicer is not None or entry.stage_copies > 1:
            continue
        for chunks in _CHUNKS if num_workers > 1 else _CHUNKS[:1]:
            sizes = ScheduleShape(num_workers, num_microbatches, chunks)
            if entry.unsupported(sizes) or sizes.num_stages > problem.num_layers:
                continue
            yield Candidate(problem, Shape(entry, sizes, microbatch_size, replicas))


def _fitting(candidate: Candidate) -> Evaluated | None:
    for with_caps in (False, True):
        partition = balanced(candidate, with_caps=with_caps)
        if partition is None:
            continue
        try:
            found = candidate.evaluate(partition)
        except ScheduleError:  # one that adapts to costs has no order within the caps
            continue
        if not found.over:
            return found
    return None
