"""The search and its bound against every partition under every regular schedule."""

import random
from itertools import combinations, pairwise

import pytest

from evener.planner.candidate import Candidate, Shape
from evener.planner.find_plan import find_plan
from evener.schedules import SCHEDULES, ScheduleShape


def _partitions(num_layers, num_stages):
    for cuts in combinations(range(1, num_layers), num_stages - 1):
        yield tuple(pairwise((0, *cuts, num_layers)))


def _fastest_ns(problem, num_workers, num_sequences):
    """Over all partitions of all shapes of one replica, the shortest step."""
    best = None
    for entry in SCHEDULES.values():
        for chunks in (1, 2):
            sizes = ScheduleShape(num_workers, num_sequences, chunks)
            if entry.unsupported(sizes) or sizes.num_stages > problem.num_layers:
                continue
            candidate = Candidate(problem, Shape(entry, sizes, 1, 1))
            for partition in _partitions(problem.num_layers, sizes.num_stages):
                step_ns = candidate.evaluate(partition).step_ns
                best = step_ns if best is None else min(best, step_ns)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_bound_below_and_plan_near_the_best_of_all(make_problem, seed):
    # 5 layers of 1 to 20 ns, 2 workers, 3 microbatches (3 does not divide by 2: one replica)
    forward_ns = [random.Random(seed).randint(1, 20) for _ in range(5)]
    problem = make_problem(forward_ns, num_workers=2, num_sequences=3)
    fastest_ns = _fastest_ns(problem, 2, 3)
    result = find_plan(problem.model, problem.cluster, problem.job, problem.profile)
    assert result.lower_bound_ns <= fastest_ns
    # more than two chunks are searched too, so it may be better; hill climbing may miss a little
    assert result.objective_ns <= 1.05 * fastest_ns


def test_the_bound_lets_two_workers_share_a_heavy_layer(make_problem):
    # Layers 1, 1, 12: F 12, I 12, W 12.  If one worker ran the head for all 4 microbatches, it
    # would need 2 + 4 x 36 = 146.  Chimera's two copies run 2 each: 1 + 1 + 2 x 36 or more.
    problem = make_problem([1, 1, 12], num_workers=2, num_sequences=4)
    shape = Shape(SCHEDULES["chimera"], ScheduleShape(2, 4), 1, 1)
    fastest_ns = min(
        Candidate(problem, shape).evaluate(partition).step_ns for partition in _partitions(3, 2)
    )
    assert fastest_ns < 146
    result = find_plan(problem.model, problem.cluster, problem.job, problem.profile)
    assert result.lower_bound_ns <= fastest_ns
