"""The baseline that everybody starts from: equal numbers of layers per stage, 1F1B.

Narayanan et al., Megatron-LM, SC 2021: one stage per worker, no data parallelism, the best of
the measured microbatch sizes.
"""

import time
from functools import partial

from evener.planner.bound import lower_bound
from evener.planner.fastest import Search, one_pipeline, require_layer_each
from evener.planner.partition.contiguous import uniform_partition
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult
from evener.planner.stop import StoppingCriterion


def plan_uniform(
    problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
) -> PlanResult:
    """Uniform 1F1B over all devices.

    Raises PlanInfeasible if there are more workers than layers or a worker's memory is too small.
    """
    del seed  # nothing here is random
    start_s = time.monotonic()
    num_workers = len(problem.cluster.devices)
    require_layer_each(problem, "uniform 1F1B is impossible")
    candidates = [one_pipeline(problem, "one_f_one_b", size) for size in problem.microbatch_sizes]
    partition = uniform_partition(problem.num_layers, num_workers)
    bound_ns = lower_bound(*(each.instance for each in candidates)).step_ns
    trials = [(each, partial(each.evaluate, partition)) for each in candidates]
    return Search("uniform 1F1B does not fit", start_s, bound_ns, stop, progress).fastest(trials)
