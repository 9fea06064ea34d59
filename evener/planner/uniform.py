"""The baseline that everybody starts from: equal numbers of layers per stage, 1F1B.

Narayanan et al., Megatron-LM, SC 2021: one stage per worker, no data parallelism, the smallest
measured microbatch.
"""

import time

from evener.errors import PlanInfeasible
from evener.planner.bound import pipeline_bound_ns
from evener.planner.candidate import Candidate, Shape
from evener.planner.partition.contiguous import uniform_partition
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult, Status
from evener.planner.stop import StoppingCriterion
from evener.schedules import SCHEDULES, ScheduleShape


def plan_uniform(
    problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
) -> PlanResult:
    """Uniform 1F1B over all devices.

    Raises PlanInfeasible if there are more workers than layers or a worker's memory is too small.
    """
    del stop, seed
    start_s = time.monotonic()
    num_workers, size = len(problem.cluster.devices), problem.microbatch_sizes[0]
    if num_workers > problem.num_layers:
        raise PlanInfeasible("uniform 1F1B is impossible", [_too_many_workers(problem)])
    num_microbatches = problem.job.num_sequences // size
    shape = Shape(SCHEDULES["one_f_one_b"], ScheduleShape(num_workers, num_microbatches), size, 1)
    candidate = Candidate(problem, shape)
    found = candidate.evaluate(uniform_partition(problem.num_layers, num_workers))
    if found.over:
        raise PlanInfeasible("uniform 1F1B does not fit", found.over)
    progress(1, 1, found.step_ns)
    bound_ns = pipeline_bound_ns(
        problem.chain_times(size), num_workers=num_workers, num_microbatches=num_microbatches
    )
    return candidate.result(
        found,
        lower_bound_ns=bound_ns,
        status=Status.OPTIMAL if found.step_ns == bound_ns else Status.SEARCHED,
        runtime_s=time.monotonic() - start_s,
        stats={"simulated": 1},
    )


def _too_many_workers(problem: Problem) -> str:
    return (
        f"the cluster has {len(problem.cluster.devices)} devices, but the model has "
        f"{problem.num_layers} layers, and every stage needs one; use fewer devices or another "
        "planner"
    )
