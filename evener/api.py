"""The verbs. Those that need torch import it when they are called."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evener.cost.flops import model_flops
from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.export.registry import EXPORTERS
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.planner.find_plan import find_plan
from evener.planner.plan_costs import costs_of_plan
from evener.report import Summary, build_report, summary_of_plan, write_report
from evener.sim import engine
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

__all__ = [
    "costs_of_plan",
    "execute",
    "export",
    "find_plan",
    "measure",
    "report",
    "simulate",
    "summarize",
]

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
    **options: Any,
) -> Profile:
    """Measure every kind of layer and the links on the devices of ``cluster``.

    Where the job cuts slices, they are measured behind their context, too.

    Every device is measured at the same time by a process of its own, so that they meet each
    other's contention as in a run.  Under torchrun this process is one of them; otherwise one
    process per device is forked here, which works for devices that are CPU workers.

    source: of the layers, or blocks; needed only if the description does not say what is in them.
    options: further fields of ``evener.profiler.MeasureOptions``, such as ``make_batch``, ``loss``.

    Raises UsageError if the parts do not belong together, ProfileError that names a layer that
    does not run, ExecutionError if a process fails.
    """
    from evener.executor.launch import is_launched, rank_from_environment, run_workers
    from evener.profiler import MeasureOptions, bench_of

    sizes = tuple(microbatch_sizes)
    # What cannot be measured is better refused once than by every process.
    bench_of(model, job, sizes, source=source, options=MeasureOptions(**options))
    measurement = _Measurement(model, cluster, job, sizes, source, progress, options)
    num_workers = len(cluster.devices)
    if not is_launched():
        return run_workers(measurement.run, num_workers, timeout_s=3600.0)[0]
    rank = rank_from_environment()
    if rank.num_ranks != num_workers:
        raise UsageError(_other_ranks(rank.num_ranks, cluster))
    return measurement.run(rank)


@dataclass(frozen=True)
class _Measurement:
    """What one process per device does."""

    model: ModelSpec
    cluster: ClusterSpec
    job: JobSpec
    microbatch_sizes: tuple[int, ...]
    source: Any
    progress: Told | None
    options: Mapping[str, Any]

    def run(self, rank: "Rank") -> Profile:
        from evener.executor.devices import device_of
        from evener.executor.failure import Progress
        from evener.executor.shared_memory import connect
        from evener.executor.watch import Watch
        from evener.profiler import (
            MeasureOptions,
            measure_links,
            measure_model,
            slice_latencies,
            typical_links,
        )

        device, is_first = device_of(rank), rank.index == 0
        types = {name: self.cluster.device(name).type for name in self.cluster.devices}
        names = self.cluster.devices
        pairs = self._pairs()
        with Watch(rank, Progress(rank.index)):
            both_ways = [both for a, b in pairs for both in ((a, b), (b, a))]
            transport = connect(rank, device, both_ways)
            options = MeasureOptions(
                device=device,
                device_type=types[names[rank.index]],
                progress=self._tell("layers", is_first),
                **self.options,
            )
            profile = measure_model(
                self.model,
                self.job,
                self.microbatch_sizes,
                source=self.source,
                options=options,
                peers=transport,
            )
            if self.job.slices > 1:
                latencies = slice_latencies(
                    self.model,
                    self.job,
                    self.microbatch_sizes,
                    source=self.source,
                    options=options,
                    peers=transport,
                )
                profile = profile.model_copy(update={"slice_latencies": latencies})
            links = measure_links(
                transport, names, pairs=pairs, device=device, progress=self._tell("links", is_first)
            )
            transport.close()
        links = links if self._num_nodes > 1 else typical_links(links, types)
        return profile.model_copy(update={"links": links})

    @property
    def _num_nodes(self) -> int:
        return len({self.cluster.device(name).node for name in self.cluster.devices})

    def _pairs(self) -> list[tuple[int, int]]:
        """All pairs; of one machine, whose devices are alike, one stands for all."""
        pairs = list(combinations(range(len(self.cluster.devices)), 2))
        return pairs if self._num_nodes > 1 else pairs[:1]

    def _tell(self, what: str, is_first: bool) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            if self.progress is not None and is_first:
                self.progress(what, done, total)

        return tell


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


def export(plan: Plan, *, to: str, path: Path | str, model: ModelSpec | None = None) -> None:
    """Write a plan in another tool's format.

    to: a name in ``evener.export.registry.EXPORTERS``. model: the plan's, for formats that know
    kinds of layers (torchtitan, Megatron-LM).

    Raises UsageError for an unknown format, ExportError with everything that the format cannot
    express.
    """
    if to not in EXPORTERS:
        raise UsageError(f'there is no format "{to}"; formats: {", ".join(EXPORTERS)}')
    EXPORTERS[to].write(plan, path, model)


def simulate(
    plan: Plan, profile: Profile, cluster: ClusterSpec, *, model: ModelSpec | None = None
) -> Timeline:
    """Predict one step of a plan, action by action, without running anything.

    Of a plan with side work it is the first step of a round.

    model: the plan's, needed where microbatches are cut into slices or the head is spread.

    Raises what ``costs_of_plan`` raises.
    """
    return engine.simulate(plan.lowered(), costs_of_plan(plan, profile, cluster, model=model))


def report(
    predicted: Timeline,
    measured: Timeline | None = None,
    *,
    path: Path | str,
    summary: Summary | None = None,
    losses: Sequence[float] = (),
) -> Path:
    """Write one self-contained HTML file that shows one timeline, or two below one another.

    summary: what the timelines do not know; see ``summarize``.

    Raises UsageError if the timelines are not of the same workers and stages.
    """
    summary = summary or Summary(title=f"Evener: {predicted.schedule.name}")
    data = build_report(predicted, measured=measured, summary=summary, losses=losses)
    return write_report(path, data)


def summarize(plan: Plan, model: ModelSpec, cluster: ClusterSpec) -> Summary:
    """What a report says of a plan besides its timelines, caps and peak FLOP/s included.

    Raises PlanError if the plan is for another model, UsageError if the cluster lacks devices of
    the plan.
    """
    plan.require_model(model)
    devices = [cluster.device(name).spec for names in plan.devices for name in names]
    peaks = [device.flops_per_s(plan.job.dtypes.activations) for device in devices]
    return replace(
        summary_of_plan(plan),
        cap_bytes=tuple(plan.job.memory_limit_bytes(each.memory_bytes) for each in devices),
        model_flops_per_step=model_flops(
            model, num_tokens=plan.job.num_tokens, sequence_length=plan.sequence_length
        ),
        peak_flops_per_s=sum(peaks) if all(peaks) else None,
    )


def _other_ranks(num_ranks: int, cluster: ClusterSpec) -> str:
    return (
        f'cluster "{cluster.name}" has {len(cluster.devices)} devices, but there are {num_ranks}'
        f" ranks; start as many with torchrun as there are devices"
    )
