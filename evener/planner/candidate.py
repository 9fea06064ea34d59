"""One way to run a job, and what the simulator says of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from evener.cost.build import links_of
from evener.cost.in_parts import cost_table_in_parts
from evener.cost.slices import Slicing, shared_bytes
from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.freezing import Freezing
from evener.ir.memory_caps import over_caps
from evener.ir.passes import insert_recompute, lower, replicate, spread_head
from evener.ir.plan import Plan, Prediction, tied_stages
from evener.ir.schedule import Schedule
from evener.planner.bounds.instance import Instance
from evener.planner.freezing.plan_freezing import plan_freezing
from evener.planner.freezing.times import frozen_costs, least_ns
from evener.planner.offload import plan_offload
from evener.planner.partition.contiguous import Partition
from evener.planner.pipeline_times import pipeline_times
from evener.planner.problem import Problem
from evener.planner.result import PlanResult, Status
from evener.planner.shared_links import with_copies
from evener.planner.side_work import fill_bubbles, units_of_job
from evener.schedules import PipelineTimes, ScheduleEntry, ScheduleShape
from evener.sim.engine import Outcome, simulate_many
from evener.spec.cluster import Link

Ties: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of stages that share parameters."""


@dataclass(frozen=True)
class Shape:
    """All that is chosen besides the partition.

    entry: the schedule. replicas: pipelines side by side, each with its share of the microbatches.
    slice_tokens: of each slice, where microbatches are cut.
    """

    entry: ScheduleEntry
    schedule: ScheduleShape
    microbatch_size: int
    replicas: int
    slice_tokens: tuple[int, ...] | None = None

    def __str__(self) -> str:
        sizes = self.schedule
        slices = "" if self.slice_tokens is None else f" in {len(self.slice_tokens)} slices"
        return (
            f"{self.entry.name}, {self.replicas} x {sizes.num_workers} workers, "
            f"{sizes.chunks_per_worker} stages each, {sizes.num_microbatches} microbatches of "
            f"{self.microbatch_size}{slices}"
            f"{f', {sizes.num_updates} updates' if sizes.num_updates > 1 else ''}"
        )


@dataclass(frozen=True)
class Evaluated:
    """A partition under a shape, simulated.

    schedule: of one replica, compute actions and offloads only.
    over: one sentence per worker that holds too much.
    offload_bytes: per stage, what leaves of an offloaded cell; None where nothing is offloaded.
    """

    partition: Partition
    schedule: Schedule
    outcome: Outcome
    over: tuple[str, ...]
    offload_bytes: tuple[int, ...] | None = None

    @property
    def step_ns(self) -> int:
        """Of one update."""
        return self.schedule.update_ns(self.outcome.step_ns)


class Candidate:
    """A shape of one problem; evaluates partitions.

    A schedule that does not adapt to costs is generated once, and lowered once for each way in
    which stages can be tied.
    """

    def __init__(self, problem: Problem, shape: Shape) -> None:
        self.problem = problem
        self.shape = shape
        self._lowered: dict[tuple[tuple[int, int], ...], Schedule] = {}

    @cached_property
    def regular(self) -> Schedule:
        """Of one replica, as the generator gives it for stages of equal times."""
        return self._recomputed(self.shape.entry(self.shape.schedule))

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Per worker of all replicas."""
        return self.problem.cluster.devices[: self.shape.replicas * self.shape.schedule.num_workers]

    @property
    def instance(self) -> Instance:
        """What the lower bounds need to know of one pipeline of this shape."""
        sizes = self.shape.schedule
        return self.problem.instance(
            self.shape.microbatch_size,
            num_workers=sizes.num_workers,
            num_microbatches=sizes.num_microbatches,
        )

    def links(self, num_workers: int) -> dict[tuple[int, int], Link]:
        """By (source, target), the links between the first workers."""
        types = self.problem.device_types[:num_workers]
        return links_of(
            self.devices[:num_workers], types, self.problem.profile, self.problem.cluster
        )

    @property
    def cap_bytes(self) -> tuple[int, ...]:
        return self.problem.cap_bytes[: len(self.devices)]

    @property
    def _slicing(self) -> Slicing | None:
        tokens = self.shape.slice_tokens
        if tokens is None:
            return None
        return Slicing(self.problem.model, tokens, self.shape.microbatch_size)

    def evaluate(self, partition: Partition) -> Evaluated:
        """Simulate one step, and compare memory with the caps.

        Where it does not fit and the job allows it, activations are offloaded.

        Raises ScheduleError if a schedule that adapts to costs finds no order within the caps.
        """
        tied = tied_stages(self.problem.model, partition)
        schedule = self._schedule_for(partition)
        found = self.judge(partition, schedule)
        schedule = found.schedule
        if not found.over or not self.problem.job.offload:
            return found
        num_workers = self.shape.schedule.num_workers
        offloading = plan_offload(
            schedule,
            self._costs(schedule, partition, tied),
            links=self.problem.cluster.shared_host_links(self.devices[:num_workers]),
            cap_bytes=[min(self.cap_bytes[w::num_workers]) for w in range(num_workers)],
            lowered=lambda offloaded: self._lower(offloaded, tied),
            shared_bytes=self._shared_bytes(partition),
        )
        if offloading is None:
            return found
        return self.judge(partition, offloading.schedule, offloading.num_bytes)

    def _shared_bytes(self, partition: Partition) -> tuple[int, ...] | None:
        """Per stage, what slices hold together; None where nothing is cut."""
        slicing, layers = self._slicing, self.problem.layer_configs
        if slicing is None:
            return None
        stages = [layers[first:last] for first, last in partition]
        return shared_bytes(self.problem.profile, slicing, stages)

    def judge(
        self,
        partition: Partition,
        schedule: Schedule,
        offload_bytes: tuple[int, ...] | None = None,
    ) -> Evaluated:
        """Simulate one step of any schedule, and compare memory with the caps.

        schedule: of one replica, compute actions and offloads only. Where the job recomputes, it
            gets the R that it lacks.
        """
        schedule = self._recomputed(schedule)
        lowered, costs = self._world(schedule, partition, offload_bytes)
        (outcome,) = simulate_many(lowered, [costs])
        fits = all(
            peak <= cap for peak, cap in zip(outcome.peak_bytes, self.cap_bytes, strict=True)
        )
        over = () if fits else tuple(over_caps(lowered, costs.memory, self.cap_bytes))
        return Evaluated(partition, schedule, outcome, over, offload_bytes)

    def costs(self, schedule: Schedule, partition: Partition) -> CostTable:
        """Of a schedule of one replica."""
        return self._costs(schedule, partition, tied_stages(self.problem.model, partition))

    def world(self, found: Evaluated) -> tuple[Schedule, CostTable]:
        """The lowered schedule of all replicas and its costs."""
        return self._world(found.schedule, found.partition, found.offload_bytes)

    def result(
        self,
        found: Evaluated,
        *,
        lower_bound_ns: int,
        status: Status,
        runtime_s: float,
        stats: dict[str, int],
        refused: tuple[str, ...] = (),
    ) -> PlanResult:
        """The answer that an evaluated partition is, with the freezing and side work of the job.

        Raises PlanInfeasible if the side work does not fit into the bubbles.
        """
        freezing, outcome = self._frozen(found)
        step_ns = found.schedule.update_ns(outcome.step_ns)
        plan = Plan(
            model=self.problem.model.name,
            model_fingerprint=self.problem.model.fingerprint(),
            layer_names=tuple(layer.name for layer in self.problem.model.layers),
            partition=found.partition,
            devices=tuple((device,) for device in self.devices),
            replicas=self.shape.replicas,
            microbatch_size=self.shape.microbatch_size,
            sequence_length=self.problem.job.sequence_length,
            slice_tokens=self.shape.slice_tokens,
            job=self.problem.job_with(self.shape.microbatch_size),
            tied=tied_stages(self.problem.model, found.partition),
            schedule=found.schedule,
            offload_bytes=found.offload_bytes,
            freezing=freezing,
            cycle=self._cycle(found, freezing),
            predicted=Prediction(
                step_ns=step_ns,
                lower_bound_ns=lower_bound_ns,
                peak_bytes=outcome.peak_bytes,
                bubble_fraction=outcome.bubbles.bubble_fraction,
                status=status.value,
            ),
        )
        return PlanResult(plan, step_ns, lower_bound_ns, status, runtime_s, stats, refused)

    def _frozen(self, found: Evaluated) -> tuple[Freezing | None, Outcome]:
        spec = self.problem.job.freeze
        if spec is None:
            return None, found.outcome
        lowered, costs = self.world(found)
        frozen = plan_freezing(lowered, costs, max_share_ppm=spec.max_share_ppm)
        (outcome,) = simulate_many(lowered, [frozen.costs])
        return frozen.freezing, outcome

    def _cycle(self, found: Evaluated, freezing: Freezing | None) -> tuple[Schedule, ...]:
        """The schedule with the job's side work in its bubbles; empty if there is none."""
        side_work = self.problem.job.side_work
        if not side_work:
            return ()
        lowered, costs = self.world(found)
        if freezing is not None:
            costs = frozen_costs(lowered, costs, least_ns(lowered, costs), freezing)
        units = units_of_job(found.schedule, side_work)
        return fill_bubbles(found.schedule, costs, units, lowered=lowered).schedules

    def _recomputed(self, schedule: Schedule) -> Schedule:
        return insert_recompute(schedule) if self.problem.job.recompute == "full" else schedule

    def times_on(self, holders: Schedule, partition: Partition) -> PipelineTimes:
        """What a scheduler may know of a partition.

        holders: any schedule of one replica; only who has something of which stage matters.
        """
        costs = self._costs(holders, partition, tied_stages(self.problem.model, partition))
        return pipeline_times(holders, costs, self.cap_bytes)

    def _schedule_for(self, partition: Partition) -> Schedule:
        """Of one replica; for an adapting schedule with the costs of the first replica."""
        if self.shape.entry.adapted is None:
            return self.regular
        return self.shape.entry(self.shape.schedule, self.times_on(self.regular, partition))

    def _world(
        self, schedule: Schedule, partition: Partition, offload_bytes: tuple[int, ...] | None
    ) -> tuple[Schedule, CostTable]:
        tied = tied_stages(self.problem.model, partition)
        lowered = self._lower(schedule, tied)
        costs = self._costs(lowered, partition, tied)
        if Kind.OFFLOAD in schedule.kinds:
            costs = with_copies(
                costs,
                lowered,
                cluster=self.problem.cluster,
                devices=self.devices,
                num_bytes=offload_bytes,
            )
        return lowered, costs

    def _lower(self, schedule: Schedule, tied: Ties) -> Schedule:
        if schedule is self.regular and tied in self._lowered:
            return self._lowered[tied]
        whole = spread_head(schedule) if self.problem.job.spread_head else schedule
        lowered = lower(
            replicate(whole, self.shape.replicas),
            tied=tied,
            clip=self.problem.job.clip_norm is not None,
        )
        if schedule is self.regular:
            self._lowered[tied] = lowered
        return lowered

    def _costs(self, schedule: Schedule, partition: Partition, tied: Ties) -> CostTable:
        """Of a schedule of one replica or of all."""
        problem = self.problem
        return cost_table_in_parts(
            schedule,
            layers=problem.layer_configs,
            partition=partition,
            devices=[(device,) for device in self.devices[: schedule.num_workers]],
            profile=problem.profile,
            cluster=problem.cluster,
            job=problem.job_with(self.shape.microbatch_size),
            tied=tied,
            head_of=problem.model if problem.job.spread_head else None,
            slicing=self._slicing,
        )
