"""The verbs. Those that need torch import it when they are called."""

from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evener.cost.build import cost_table
from evener.cost.profile import Profile
from evener.cost.table import CostTable
from evener.errors import UsageError
from evener.export.registry import EXPORTERS
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.planner.find_plan import find_plan
from evener.report import Summary, build_report, write_report
from evener.sim import engine
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec, layer_config

__all__ = ["costs_of_plan", "execute", "export", "find_plan", "measure", "report", "simulate"]

if TYPE_CHECKING:
    from evener.executor.launch import Rank
    from evener.executor.session import Training

Told = Callable[[str, int, int], None]
"""Told (what is being measured, done, in all) on rank 0."""


def measure(
    model: ModelSpec,
    cluster: ClusterSpec,
    job: JobSpec,
    *,
    microbatch_sizes: Sequence[int] = (1,),
    source: Any = None,
    progress: Told | None = None,
) -> Profile:
    """Measure every kind of layer and every link on the devices of ``cluster``.

    Every device is measured at the same time by a process of its own, so that they meet each
    other's contention as in a run.  Under torchrun this process is one of them; otherwise one
    process per device is forked here, which works for devices that are CPU workers.

    source: of the layers (see ``evener.modules.layer_source``), needed only if the description
        does not say what is in them.

    Raises UsageError if the parts do not belong together, ProfileError that names a layer that
    does not run, ExecutionError if a process fails.
    """
    from evener.executor.launch import is_launched, rank_from_environment, run_workers

    def on_rank(rank: "Rank") -> Profile:
        return _measure_on(
            rank, model, cluster, job, microbatch_sizes=microbatch_sizes, source=source,
            told=progress if rank.index == 0 else None,
        )  # fmt: skip

    num_workers = len(cluster.devices)
    if is_launched():
        rank = rank_from_environment()
        if rank.num_ranks != num_workers:
            raise UsageError(_other_ranks(rank.num_ranks, cluster))
        return on_rank(rank)
    return run_workers(on_rank, num_workers, timeout_s=3600.0)[0]


def _measure_on(
    rank: "Rank",
    model: ModelSpec,
    cluster: ClusterSpec,
    job: JobSpec,
    *,
    microbatch_sizes: Sequence[int],
    source: Any,
    told: Told | None,
) -> Profile:
    """What one process per device does."""
    from evener.executor.devices import device_of
    from evener.executor.failure import Progress
    from evener.executor.torch_transport import TorchTransport
    from evener.executor.watch import Watch
    from evener.profiler import MeasureOptions, measure_links, measure_model

    def tell(what: str) -> Callable[[int, int], None]:
        return lambda done, total: None if told is None else told(what, done, total)

    device = device_of(rank)
    with Watch(rank, Progress(rank.index)):
        transport = TorchTransport(
            rank.store,
            worker=rank.index,
            num_workers=rank.num_ranks,
            pairs=list(permutations(range(rank.num_ranks), 2)),
            device=device,
        )
        options = MeasureOptions(
            device=device,
            device_type=cluster.device(cluster.devices[rank.index]).type,
            progress=tell("layers"),
        )
        profile = measure_model(
            model, job, microbatch_sizes, source=source, options=options, peers=transport
        )
        links = measure_links(transport, cluster.devices, device=device, progress=tell("links"))
        transport.close()
    return profile.model_copy(update={"links": links})


def execute(
    plan: Plan,
    model: Any,
    make_batch: Callable[[int], Any],
    *,
    steps: int,
    local: bool = False,
    **session: Any,
) -> "Training":
    """Train by a plan and time every action; the result's ``timeline`` is of a median step.

    model: a ModelSpec, or an ``nn.Module`` that is a sequence of blocks.
    make_batch: step index -> the whole batch, the same on every rank.
    local: fork one process per worker on this machine; otherwise this process is a rank of
        torchrun.
    session: further fields of ``evener.executor.session.Session``.

    Raises PlanError if the plan is for another model, UsageError if there is not one rank per
    worker, ExecutionError if any rank fails.
    """
    from evener.executor.launch import rank_from_environment
    from evener.executor.session import Session, train_local

    run: Session = Session(plan, model, make_batch, steps, **session)
    return train_local(run) if local else run.train(rank_from_environment())


def export(plan: Plan, *, to: str, path: Path | str) -> None:
    """Write a plan in another tool's format.

    to: a name in ``evener.export.registry.EXPORTERS``.

    Raises UsageError for an unknown format, ExportError with everything that the format cannot
    express.
    """
    if to not in EXPORTERS:
        raise UsageError(f'there is no format "{to}"; formats: {", ".join(EXPORTERS)}')
    EXPORTERS[to].write(plan, path)


def costs_of_plan(
    plan: Plan, profile: Profile, cluster: ClusterSpec, *, schedule: Schedule | None = None
) -> CostTable:
    """What every action of a plan costs.

    schedule: to be priced in place of ``plan.lowered()``.

    Raises ProfileError if the profile is of another model or lacks layers of the plan, UsageError
    if the cluster lacks devices of the plan.
    """
    if profile.fingerprint != plan.model_fingerprint:
        raise UsageError(_profile_of_another_model(plan, profile))
    unknown = [d for (d,) in plan.devices if d not in cluster.devices]
    if unknown:
        raise UsageError(_not_in_cluster(unknown, cluster))
    return cost_table(
        plan.lowered() if schedule is None else schedule,
        layers=[layer_config(name) for name in plan.layer_names],
        partition=plan.partition,
        devices=plan.devices,
        profile=profile,
        cluster=cluster,
        job=plan.job.model_copy(update={"microbatch_size": plan.microbatch_size}),
        tied=plan.tied,
    )


def simulate(plan: Plan, profile: Profile, cluster: ClusterSpec) -> Timeline:
    """Predict one step of a plan, action by action, without running anything.

    Raises what ``costs_of_plan`` raises.
    """
    return engine.simulate(plan.lowered(), costs_of_plan(plan, profile, cluster))


def report(
    predicted: Timeline,
    measured: Timeline | None = None,
    *,
    path: Path | str,
    title: str = "Evener",
    losses: Sequence[float] = (),
    **facts: Any,
) -> Path:
    """Write one self-contained HTML file that shows one timeline, or two below one another.

    facts: further fields of ``evener.report.Summary``.

    Raises UsageError if the timelines are not of the same workers and stages.
    """
    summary = Summary(title=title, **facts)
    data = build_report(predicted, measured=measured, summary=summary, losses=losses)
    return write_report(path, data)


def _profile_of_another_model(plan: Plan, profile: Profile) -> str:
    return (
        f'the plan is for model "{plan.model}" ({plan.model_fingerprint[:12]}), but the profile is '
        f'of model "{profile.model}" ({profile.fingerprint[:12]}); measure the model of the plan'
    )


def _not_in_cluster(devices: Sequence[str], cluster: ClusterSpec) -> str:
    return (
        f'the plan uses {", ".join(devices)}, which cluster "{cluster.name}" does not have; it '
        f"has {', '.join(cluster.devices[:8])}{' ...' if len(cluster.devices) > 8 else ''}; give "
        "the cluster of the plan, or plan again"
    )


def _other_ranks(num_ranks: int, cluster: ClusterSpec) -> str:
    return (
        f'cluster "{cluster.name}" has {len(cluster.devices)} devices, but there are {num_ranks}'
        f" ranks; start as many with torchrun as there are devices"
    )
