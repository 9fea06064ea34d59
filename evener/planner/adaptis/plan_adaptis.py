"""AdaPtis' search as published, to compare with: phase by phase, each with its own judge.

Guo et al., "AdaPtis" (arXiv 2509.23722, later OctoPipe), section 4, as SimPipe does it, the
simulator that the authors publish.  ``planner.joint`` searches all three at once.
"""

import time
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.planner.adaptis.partitions import even_partitions
from evener.planner.adaptis.placements import Placement, Score, placements
from evener.planner.bound import lower_bound
from evener.planner.candidate import Candidate, Evaluated
from evener.planner.fastest import Search, one_pipeline, require_layer_each
from evener.planner.partition.contiguous import Partition
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult
from evener.planner.stop import StoppingCriterion
from evener.schedules.adaptis_greedy import adaptis_greedy


class _Ranked(NamedTuple):
    """A partition with a placement, and how even the workers are."""

    score: Score
    partition: Partition
    placement: Placement


@dataclass(frozen=True)
class AdaptisPlanner:
    """A planner with SimPipe's widths, whose example has 32 for both.

    num_partitions: partitions that are looked at, of each number of stages.
    num_simulated: pairs of partition and placement that are simulated, of all numbers of stages;
        ``least_simulated`` of each at least.
    most_chunks: the most stages per worker, on average.
    """

    num_partitions: int = 32
    num_simulated: int = 32
    least_simulated: int = 2
    most_chunks: int = 6

    def __call__(
        self, problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
    ) -> PlanResult:
        """One pipeline over all devices, with the best of the measured microbatch sizes.

        The number of stages is each multiple of the number of workers.  Of the partitions with the
        least variance of stage times and the placements near the regular one, the pairs that load
        workers most evenly get the order of ``adaptis_greedy`` and are simulated.

        Raises PlanInfeasible if there are more workers than layers, or if nothing that was
        simulated fits into memory.
        """
        start_s = time.monotonic()
        require_layer_each(problem, "AdaPtis' search is impossible")
        candidates = [
            one_pipeline(problem, "adaptis_greedy", size) for size in problem.microbatch_sizes
        ]
        bound_ns = lower_bound(*(each.instance for each in candidates)).step_ns
        trials = [
            (each, partial(_evaluate, each, ranked))
            for each in candidates
            for ranked in self._chosen(each, seed)
        ]
        return Search("no plan of AdaPtis' search fits", start_s, bound_ns, stop, progress).fastest(
            trials
        )

    def _chosen(self, candidate: Candidate, seed: int) -> list[_Ranked]:
        """What is simulated of one microbatch size, the most even pairs first."""
        problem, num_workers = candidate.problem, candidate.shape.schedule.num_workers
        costs = problem.layer_costs(problem.device_types[0], candidate.shape.microbatch_size)
        time_ns = np.array([cost.forward_ns + problem.backward_ns(cost) for cost in costs])
        most_stages = num_workers * min(self.most_chunks, problem.num_layers // num_workers)
        of_each = even_partitions(time_ns, most_stages=most_stages, count=self.num_partitions)
        random = np.random.default_rng(seed)
        ranked = [
            sorted(
                _Ranked(score, partition, placement)
                for partition in partitions
                for placement, score in placements(
                    np.add.reduceat(time_ns, [first for first, _ in partition]), num_workers, random
                ).items()
            )
            for partitions in of_each[num_workers - 1 :: num_workers]
        ]
        sure = [each for of_one in ranked for each in of_one[: self.least_simulated]]
        rest = sorted(chain(*(of_one[self.least_simulated :] for of_one in ranked)))
        return sorted(sure + rest[: max(0, self.num_simulated - len(sure))])


plan_adaptis = AdaptisPlanner()


def _evaluate(candidate: Candidate, ranked: _Ranked) -> Evaluated | None:
    """None if memory caps leave no order."""
    sizes, partition = candidate.shape.schedule, ranked.partition
    held = [
        tuple(
            Action(stage, Kind.F, 0) for stage, own in enumerate(ranked.placement) if own == worker
        )
        for worker in range(sizes.num_workers)
    ]
    holders = Schedule("placement", len(partition), sizes.num_microbatches, tuple(held))
    try:
        schedule = adaptis_greedy(
            sizes, candidate.times_on(holders, partition), workers=ranked.placement
        )
    except ScheduleError:
        return None
    return candidate.judge(partition, schedule)
