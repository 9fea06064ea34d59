"""The baseline that everybody starts from: equal numbers of layers per stage, 1F1B.

Narayanan et al., Megatron-LM, SC 2021: one stage per worker, no data parallelism, the best of
the measured microbatch sizes.
"""

import time

from evener.errors import PlanInfeasible
from evener.planner.bound import lower_bound
from evener.planner.candidate import Candidate, Evaluated, Shape
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
    if len(problem.cluster.devices) > problem.num_layers:
        raise PlanInfeasible("uniform 1F1B is impossible", [_too_many_workers(problem)])
    tried = [_evaluate(problem, size) for size in problem.microbatch_sizes]
    fitting = [each for each in tried if not each[1].over]
    if not fitting:
        raise PlanInfeasible("uniform 1F1B does not fit", tried[0][1].over)
    candidate, found = min(fitting, key=lambda each: each[1].step_ns)
    progress(len(tried), len(tried), found.step_ns)
    bound_ns = lower_bound(*(each.instance for each, _ in tried)).step_ns
    return candidate.result(
        found,
        lower_bound_ns=bound_ns,
        status=Status.OPTIMAL if found.step_ns == bound_ns else Status.SEARCHED,
        runtime_s=time.monotonic() - start_s,
        stats={"simulated": len(tried)},
    )


def _evaluate(problem: Problem, microbatch_size: int) -> tuple[Candidate, Evaluated]:
    num_workers = len(problem.cluster.devices)
    sizes = ScheduleShape(num_workers, problem.job.num_sequences // microbatch_size)
    candidate = Candidate(problem, Shape(SCHEDULES["one_f_one_b"], sizes, microbatch_size, 1))
    return candidate, candidate.evaluate(uniform_partition(problem.num_layers, num_workers))


def _too_many_workers(problem: Problem) -> str:
    return (
        f"the cluster has {len(problem.cluster.devices)} devices, but the model has "
        f"{problem.num_layers} layers, and every stage needs one; use fewer devices or another "
        "planner"
    )
