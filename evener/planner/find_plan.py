"""The one door to all planners."""

from collections.abc import Mapping
from types import MappingProxyType

from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.planner.adaptis.plan_adaptis import plan_adaptis
from evener.planner.exact.plan_exact import plan_exact
from evener.planner.joint.plan_joint import plan_joint
from evener.planner.megatron import plan_megatron
from evener.planner.optpipe.plan_optpipe import plan_optpipe
from evener.planner.problem import Planner, Problem, Progress, tell_nobody
from evener.planner.result import PlanResult
from evener.planner.spp.plan_spp import plan_spp
from evener.planner.stop import NeverStop, StoppingCriterion
from evener.planner.sweep import plan_sweep
from evener.planner.uniform import plan_uniform
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        "sweep": plan_sweep,
        "joint": plan_joint,
        "exact": plan_exact,
        "adaptis": plan_adaptis,
        "spp": plan_spp,
        "megatron": plan_megatron,
        "optpipe": plan_optpipe,
        "uniform": plan_uniform,
    }
)
"""Every planner by name. A new one is a new file and one line here."""


def find_plan(
    model: ModelSpec,
    cluster: ClusterSpec,
    job: JobSpec,
    profile: Profile,
    *,
    planner: str = "sweep",
    stop: StoppingCriterion | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> PlanResult:
    """Find who runs which layers in which order, with a bound on how good that is.

    planner: a name in ``PLANNERS``. stop: when to give the best plan so far; None means never.
    seed: same seed, same answer. progress: told about candidates while the search runs.

    Raises UsageError for an unknown planner, ProfileError if the profile does not have what the
    model and the job need, PlanInfeasible if nothing fits.
    """
    require_planner(planner)
    return PLANNERS[planner](
        Problem(model, cluster, job, profile),
        stop=stop or NeverStop(),
        seed=seed,
        progress=progress or tell_nobody,
    )


def require_planner(name: str) -> None:
    """Raise UsageError unless there is a planner of that name."""
    if name not in PLANNERS:
        raise UsageError(_unknown_planner(name))


def _unknown_planner(name: str) -> str:
    return f'there is no planner "{name}"; planners: {", ".join(PLANNERS)}'
