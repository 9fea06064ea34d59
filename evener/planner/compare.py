"""All schedules side by side: the same workers, microbatches, costs and memory for each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from evener.cost.slices import cannot_be_sliced
from evener.cost.table import CostTable
from evener.errors import EvenerError, PlanInfeasible, ScheduleError
from evener.ir.action import Kind
from evener.ir.freezing import Freezing
from evener.ir.memory import MemoryTable, peak_bytes, peak_in_flight
from evener.ir.passes import lower
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule, compute_only
from evener.ir.timeline import Timeline
from evener.planner.bound import lower_bound
from evener.planner.bounds.instance import WHOLE, ChainTimes, Instance, Times, quotient_up
from evener.planner.candidate import Candidate, Shape
from evener.planner.freezing.plan_freezing import plan_freezing
from evener.planner.freezing.times import frozen_costs, least_ns
from evener.planner.pipeline_times import pipeline_times
from evener.planner.problem import Problem, Progress, tell_nobody
from evener.planner.side_work import fill_bubbles, units_of_job
from evener.planner.slicing.of_problem import slice_tokens
from evener.planner.sweep import balanced
from evener.schedules import SCHEDULES, ScheduleEntry, ScheduleShape, StageTimes
from evener.schedules.entry import offered
from evener.sim.engine import simulate
from evener.sim.stats import Bubbles, bubbles
from evener.spec.side_work import SideWorkSpec

CHUNKS = (1, 2)
"""Stages per worker that are tried if nothing else is asked for: plain, and in a V or a loop."""


class FrozenStep(NamedTuple):
    """A schedule with TimelyFreeze's shares.

    step_ns: of the step. mean_ppm: the mean share. uniform_ns: of the step with the mean share for
    every stage and microbatch.
    """

    step_ns: int
    mean_ppm: int
    uniform_ns: int


@dataclass(frozen=True)
class ComparedSchedule:
    """A schedule that fits, simulated.

    timeline: predicted, messages written out. peak_in_flight: per worker.
    num_messages, message_bytes: sent between workers in one step, which is one optimizer update.
    num_reduces: stages whose gradients are added up between several workers in one step.
    num_offloaded: activations that spend a while in host memory.
    num_side_steps: in how many steps the side work of the world is done once; None if it does not
    fit into the bubbles, 0 if there is none.
    frozen: with freezing, if the world freezes; all else is without.
    """

    entry: ScheduleEntry
    shape: ScheduleShape
    timeline: Timeline
    peak_in_flight: tuple[int, ...]
    num_messages: int
    message_bytes: int
    num_reduces: int
    num_side_steps: int | None = 0
    frozen: FrozenStep | None = None
    num_offloaded: int = 0

    @property
    def step_ns(self) -> int:
        return self.timeline.update_ns

    @property
    def peak_bytes(self) -> int:
        """The most that any worker holds."""
        return max(self.timeline.peak_bytes)

    @cached_property
    def bubbles(self) -> Bubbles:
        return bubbles(self.timeline)


@dataclass(frozen=True)
class RefusedSchedule:
    """A schedule that cannot run here, and why."""

    entry: ScheduleEntry
    shape: ScheduleShape
    reason: str


@dataclass(frozen=True)
class Comparison:
    """compared: fastest first. lower_bound_ns: proven: none of these schedules can be faster.

    Both are without freezing.
    """

    compared: tuple[ComparedSchedule, ...]
    refused: tuple[RefusedSchedule, ...]
    lower_bound_ns: int

    @property
    def has_offload(self) -> bool:
        return any(schedule.num_offloaded for schedule in self.compared)

    @property
    def has_side_work(self) -> bool:
        return any(schedule.num_side_steps != 0 for schedule in self.compared)

    @property
    def has_freezing(self) -> bool:
        return any(schedule.frozen is not None for schedule in self.compared)

    def gap(self, schedule: ComparedSchedule) -> float:
        """How much longer the schedule takes than the bound, relative to the bound."""
        return schedule.step_ns / max(1, self.lower_bound_ns) - 1


class Pieces(NamedTuple):
    """What lower bounds know of a world whose microbatches may be cut in slices.

    times: of the layers. per_microbatch: how often they are run for each microbatch, which is then
    so many in all; a schedule that does not cut it runs them one right after the other.
    first_part, slice_way_ns: see ``bounds.Instance``.
    """

    times: ChainTimes
    per_microbatch: int = 1
    first_part: Fraction = WHOLE
    slice_way_ns: Times | None = None


class World(Protocol):
    """What all schedules are compared in."""

    @property
    def num_workers(self) -> int: ...

    @property
    def num_microbatches(self) -> int: ...

    @property
    def num_updates(self) -> int:
        """Updates between two flushes of asynchronous schedules; 1 where none are asked for."""

    @property
    def side_work(self) -> tuple[SideWorkSpec, ...]: ...

    @property
    def max_share_ppm(self) -> int | None:
        """Cap on the mean frozen share of a stage; None if nothing is frozen."""

    def play(self, entry: ScheduleEntry, shape: ScheduleShape) -> tuple[Schedule, CostTable]:
        """The lowered schedule and its costs.

        Raises ScheduleError or PlanInfeasible if it cannot run or does not fit.
        """

    def chain(self, num_stages: int, num_slices: int) -> "Pieces":
        """The model in pieces that no schedule cuts further.

        num_stages, num_slices: the most stages of the model and slices of a microbatch.
        """

    @property
    def message_ns(self) -> int:
        """The least time of a message between two workers."""


def compare(
    world: World,
    *,
    chunks: Sequence[int] = CHUNKS,
    num_slices: int = 1,
    schedules: Mapping[str, ScheduleEntry] = SCHEDULES,
    progress: Progress = tell_nobody,
) -> Comparison:
    """Simulate every schedule with each number of stages per worker that it accepts.

    chunks: the numbers of stages per worker to try.
    num_slices: into how many slices those schedules cut a microbatch that do; 1 leaves them out.
    progress: told about schedules in all their shapes.
    """
    compared: list[ComparedSchedule] = []
    refused: list[RefusedSchedule] = []
    entries = offered(schedules.values(), asynchronous=world.num_updates > 1)
    tried = [
        (entry, shape)
        for entry in entries
        if entry.slicer is None or num_slices > 1
        for shape in _shapes(world, entry, chunks, num_slices)
    ]
    for done, (entry, shape) in enumerate(tried, start=1):
        try:
            compared.append(_compared(world, entry, shape))
        except (ScheduleError, PlanInfeasible) as error:
            refused.append(RefusedSchedule(entry, shape, _reason(entry, error)))
        progress(done, len(tried), min((each.step_ns for each in compared), default=None))
    return Comparison(
        tuple(sorted(compared, key=lambda schedule: schedule.step_ns)),
        tuple(refused),
        _lower_bound_ns(
            world,
            world.chain(max(chunks) * world.num_workers, num_slices),
            {(entry.stage_copies, _num_updates(world, entry)) for entry in entries},
        ),
    )


@dataclass(frozen=True)
class EqualWorld:
    """Workers that all hold an equal share of a model, however many stages it is cut in.

    times: of one microbatch on the share of one worker; a stage, and a slice, takes its part.
    latency_ns: of every message. share_bytes: what a worker's share of the model keeps of one
    microbatch, from the forward until the last part of the backward. cap_bytes: the most that a
    worker may hold; None means no limit.
    Times and bytes that the numbers of stages per worker and of slices do not divide are rounded
    down.
    """

    num_workers: int
    num_microbatches: int
    times: StageTimes
    latency_ns: int = 0
    share_bytes: int = 2
    cap_bytes: int | None = None
    num_updates: int = 1
    side_work: tuple[SideWorkSpec, ...] = ()
    max_share_ppm: int | None = None

    def play(self, entry: ScheduleEntry, shape: ScheduleShape) -> tuple[Schedule, CostTable]:
        """See ``World``."""
        costs = self._costs(shape)
        caps = None if self.cap_bytes is None else (self.cap_bytes,) * self.num_workers
        regular = entry(shape)
        if entry.adapted is not None:
            regular = entry(shape, pipeline_times(regular, costs, caps))
        lowered = lower(regular)
        peak = max(peak_bytes(lowered, costs.memory))
        if self.cap_bytes is not None and peak > self.cap_bytes:
            raise PlanInfeasible(_over_cap(peak, self.cap_bytes, self.share_bytes))
        return lowered, costs

    def chain(self, num_stages: int, num_slices: int) -> Pieces:
        """See ``World``: all slices take equally long."""
        part = self.times.part(num_stages // self.num_workers * num_slices)
        row = [part.forward_ns, part.input_grad_ns, part.forward_ns + part.backward_ns]
        times = ChainTimes(*np.array([row] * num_stages, dtype=np.int64).T)
        return Pieces(times, per_microbatch=num_slices)

    @property
    def message_ns(self) -> int:
        """See ``World``."""
        return self.latency_ns

    def _costs(self, shape: ScheduleShape) -> CostTable:
        parts = shape.chunks_per_worker * shape.num_slices
        times = self.times.part(parts)
        table = CostTable.uniform(
            shape.num_workers,
            shape.num_stages,
            forward_ns=times.forward_ns,
            input_ns=times.input_grad_ns,
            weight_ns=times.weight_grad_ns,
            latency_ns=self.latency_ns,
        )
        held = (self.share_bytes // parts,) * shape.num_stages
        per_stage = dict.fromkeys((Resource.ACTIVATION, Resource.WEIGHT_GRADIENT), held)
        memory = MemoryTable(per_stage=per_stage, static_bytes=(0,) * shape.num_workers)
        return replace(table, memory=memory)


@dataclass(frozen=True)
class PlannedWorld:
    """A planning problem: all devices form one pipeline, each schedule has its own partition.

    The microbatches are of the smallest size that the job allows.
    """

    problem: Problem

    @property
    def num_workers(self) -> int:
        return len(self.problem.cluster.devices)

    @property
    def num_microbatches(self) -> int:
        return self.problem.job.num_sequences // self._microbatch_size

    @property
    def num_updates(self) -> int:
        return self.problem.job.num_updates

    @property
    def side_work(self) -> tuple[SideWorkSpec, ...]:
        return self.problem.job.side_work

    @property
    def max_share_ppm(self) -> int | None:
        """See ``World``."""
        freeze = self.problem.job.freeze
        return None if freeze is None else freeze.max_share_ppm

    @property
    def _microbatch_size(self) -> int:
        return self.problem.microbatch_sizes[0]

    def play(self, entry: ScheduleEntry, shape: ScheduleShape) -> tuple[Schedule, CostTable]:
        """See ``World``; with equal shares of time, or where they do not fit, within the caps."""
        tokens = self._slice_tokens(entry, shape)
        if tokens is not None:
            shape = replace(shape, num_slices=len(tokens))
        sizes = Shape(entry, shape, self._microbatch_size, replicas=1, slice_tokens=tokens)
        if shape.num_stages > self.problem.num_layers:
            raise PlanInfeasible(_too_few_layers(shape.num_stages, self.problem.num_layers))
        candidate = Candidate(self.problem, sizes)
        over: tuple[str, ...] = ()
        for with_caps in (False, True):
            partition = balanced(candidate, with_caps=with_caps)
            if partition is None:
                continue
            try:
                found = candidate.evaluate(partition)
            except ScheduleError as error:  # one that adapts to costs has no order within the caps
                over = error.violations or (error.header,)
                continue
            if not found.over:
                return candidate.world(found)
            over = found.over
        raise PlanInfeasible("it does not fit into memory", over)

    def chain(self, num_stages: int, num_slices: int) -> Pieces:
        """See ``World``: layers are not cut, and a slice may be as short as a token."""
        del num_stages
        times = self.problem.chain_times(self._microbatch_size)
        return Pieces(
            times,
            first_part=WHOLE if num_slices == 1 else Fraction(0),
            slice_way_ns=self.problem.slice_way_ns(self._microbatch_size, num_slices),
        )

    def _slice_tokens(self, entry: ScheduleEntry, shape: ScheduleShape) -> tuple[int, ...] | None:
        """None where nothing is cut. Raises PlanInfeasible if the model needs whole sequences."""
        if entry.slicer is None or shape.num_slices == 1:
            return None
        reasons = cannot_be_sliced(self.problem.model)
        if reasons:
            raise PlanInfeasible("it cannot be computed in slices of tokens", reasons)
        tokens = slice_tokens(
            self.problem, shape, entry.slicer, microbatch_size=self._microbatch_size
        )
        return tokens if len(tokens) > 1 else None

    @property
    def message_ns(self) -> int:
        """See ``World``."""
        return self.problem.message_ns


def _shapes(
    world: World, entry: ScheduleEntry, chunks: Sequence[int], num_slices: int
) -> Iterable[ScheduleShape]:
    """Those that the schedule accepts; if it accepts none, the first, which it then refuses."""
    slices = 1 if entry.slicer is None else num_slices
    sizes = world.num_workers, world.num_microbatches
    updates = _num_updates(world, entry)
    shapes = [ScheduleShape(*sizes, count, slices, updates) for count in chunks]
    return [shape for shape in shapes if entry.unsupported(shape) is None] or shapes[:1]


def _num_updates(world: World, entry: ScheduleEntry) -> int:
    return world.num_updates if entry.asynchronous else 1


def _compared(world: World, entry: ScheduleEntry, shape: ScheduleShape) -> ComparedSchedule:
    schedule, costs = world.play(entry, shape)
    sends = [
        costs.message_bytes(action)
        for _, action in schedule.actions()
        if action.kind in (Kind.SEND_F, Kind.SEND_B)
    ]
    reduces = {
        (action.stage, action.peer)
        for _, action in schedule.actions()
        if action.kind is Kind.REDUCE
    }
    return ComparedSchedule(
        entry=entry,
        shape=shape,
        timeline=simulate(schedule, costs),
        peak_in_flight=peak_in_flight(schedule),
        num_messages=len(sends) // schedule.updates.number,
        message_bytes=sum(sends) // schedule.updates.number,
        num_reduces=len(reduces),
        num_side_steps=_num_side_steps(world, schedule, costs),
        num_offloaded=sum(action.kind is Kind.OFFLOAD for _, action in schedule.actions()),
        frozen=_frozen_step(world, schedule, costs),
    )


def _frozen_step(world: World, lowered: Schedule, costs: CostTable) -> FrozenStep | None:
    if world.max_share_ppm is None:
        return None
    frozen = plan_freezing(lowered, costs, max_share_ppm=world.max_share_ppm)
    mean_ppm = frozen.freezing.mean_ppm
    uniform = Freezing.uniform(lowered, mean_ppm)
    evenly = frozen_costs(lowered, costs, least_ns(lowered, costs), uniform)
    return FrozenStep(
        simulate(lowered, frozen.costs).step_ns, mean_ppm, simulate(lowered, evenly).step_ns
    )


def _num_side_steps(world: World, lowered: Schedule, costs: CostTable) -> int | None:
    if not world.side_work:
        return 0
    schedule = compute_only(lowered)
    units = units_of_job(schedule, world.side_work)
    try:
        return len(fill_bubbles(schedule, costs, units, lowered=lowered).schedules)
    except PlanInfeasible:
        return None


def _lower_bound_ns(world: World, pieces: Pieces, kinds: Iterable[tuple[int, int]]) -> int:
    """kinds: pairs of the workers that hold a stage and of updates between two flushes."""

    def of_kind(copies: int, num_updates: int) -> int:
        instance = Instance(
            pieces.times,
            world.num_workers,
            world.num_microbatches * pieces.per_microbatch * num_updates,
            stage_copies=copies,
            first_part=pieces.first_part,
            message_ns=world.message_ns,
            slice_way_ns=pieces.slice_way_ns,
        )
        return quotient_up(lower_bound(instance).step_ns, num_updates)

    return min(of_kind(*kind) for kind in kinds)


def _reason(entry: ScheduleEntry, error: EvenerError) -> str:
    """The first thing that is wrong; that it is wrong with this schedule is clear."""
    first = (error.violations or (error.header,))[0].removeprefix(f"{entry.name} ")
    others = len(error.violations) - 1
    return first if others < 1 else f"{first} (and {others} more)"


def _too_few_layers(num_stages: int, num_layers: int) -> str:
    return f"needs {num_stages} layers or more, the model has {num_layers}"


def _over_cap(peak: int, cap: int, share_bytes: int) -> str:
    return (
        f"holds {peak / share_bytes:g} microbatches on a worker, the cap is {cap / share_bytes:g}"
    )
