"""What every action of a plan costs, by a profile and a cluster."""

from collections.abc import Sequence

from evener.cost.in_parts import cost_table_in_parts
from evener.cost.profile import Profile
from evener.cost.slices import Slicing
from evener.cost.table import CostTable
from evener.errors import UsageError
from evener.ir.action import Kind
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.planner.freezing.times import frozen_costs, least_ns
from evener.planner.shared_links import with_copies
from evener.spec.cluster import ClusterSpec
from evener.spec.model import ModelSpec, layer_config


def costs_of_plan(
    plan: Plan,
    profile: Profile,
    cluster: ClusterSpec,
    *,
    schedule: Schedule | None = None,
    model: ModelSpec | None = None,
) -> CostTable:
    """What every action of a plan costs, with what the plan freezes.

    schedule: to be priced in place of ``plan.lowered()``.
    model: the plan's, needed where microbatches are cut into slices or the head is spread: it says
        what each part costs.

    Raises ProfileError if the profile is of another model or lacks layers of the plan, UsageError
    if the cluster lacks devices of the plan or the model is missing, PlanError if it is another
    one.
    """
    if profile.fingerprint != plan.model_fingerprint:
        raise UsageError(_profile_of_another_model(plan, profile))
    unknown = [d for (d,) in plan.devices if d not in cluster.devices]
    if unknown:
        raise UsageError(_not_in_cluster(unknown, cluster))
    priced = plan.lowered() if schedule is None else schedule
    slicing = None
    if plan.slice_tokens is not None:
        slicing = Slicing(_required(plan, model), plan.slice_tokens, plan.microbatch_size)
    costs = cost_table_in_parts(
        priced,
        layers=[layer_config(name) for name in plan.layer_names],
        partition=plan.partition,
        devices=plan.devices,
        profile=profile,
        cluster=cluster,
        job=plan.job.model_copy(update={"microbatch_size": plan.microbatch_size}),
        tied=plan.tied,
        head_of=_required(plan, model) if plan.job.spread_head else None,
        slicing=slicing,
    )
    if Kind.OFFLOAD in plan.schedule.kinds:
        devices = [device for (device,) in plan.devices]
        costs = with_copies(
            costs, priced, cluster=cluster, devices=devices, num_bytes=plan.offload_bytes
        )
    if plan.freezing is None:
        return costs
    return frozen_costs(priced, costs, least_ns(priced, costs), plan.freezing)


def _required(plan: Plan, model: ModelSpec | None) -> ModelSpec:
    """The model, where the costs of parts of its layers follow from it."""
    if model is None:
        raise UsageError(_NO_MODEL)
    plan.require_model(model)
    return model


def _profile_of_another_model(plan: Plan, profile: Profile) -> str:
    return (
        f'the plan is for model "{plan.model}" ({plan.model_fingerprint[:12]}), but the profile is '
        f'of model "{profile.model}" ({profile.fingerprint[:12]}); measure the model of the plan'
    )


_NO_MODEL = (
    "the plan cuts microbatches into slices or spreads the head, and what each part costs follows "
    "from the model; give the model too, on the command line with --model"
)


def _not_in_cluster(devices: Sequence[str], cluster: ClusterSpec) -> str:
    return (
        f'the plan uses {", ".join(devices)}, which cluster "{cluster.name}" does not have; it '
        f"has {', '.join(cluster.devices[:8])}{' ...' if len(cluster.devices) > 8 else ''}; give "
        "the cluster of the plan, or plan again"
    )
