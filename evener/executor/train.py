"""Training by a plan: what one rank does, step after step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from torch.optim import Optimizer

from evener.errors import PlanError, UsageError
from evener.executor.batch import Batch, cut, num_samples
from evener.executor.bubbles import bubbles_before, harvests
from evener.executor.clock import WallClock
from evener.executor.engine import Engine
from evener.executor.failure import Progress
from evener.executor.freezer import Freezer
from evener.executor.freezing_engine import FreezingEngine
from evener.executor.handover import Heritage, take_over
from evener.executor.loop import Loop
from evener.executor.parameters import ParameterNames, owners
from evener.executor.side_tasks import SideTask, SideTasks
from evener.executor.side_work import SideCalls, SideWork, require_side_work, side_calls
from evener.executor.slices import joined
from evener.executor.torch_engine import StepState, TorchEngine, UpdateState
from evener.executor.trace import clock_offset_ns, gather_timeline, this_machine
from evener.executor.transport import Transport, connections
from evener.executor.versioned_engine import VersionedEngine
from evener.executor.worker_model import WorkerModel, build_worker_model
from evener.interp.worker import WorkerProgram
from evener.ir.freezing import Freezing
from evener.ir.passes import insert_messages, without_steps
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule, without_side_work
from evener.ir.timeline import Timeline
from evener.modules.backward_split import Way
from evener.modules.head_part import spread_loss
from evener.modules.keyed_rng import KeyedGenerators
from evener.modules.layers import LayerSource, layer_source
from evener.modules.loss import Loss, TokenLoss
from evener.modules.optimizer import (
    OptimizerFactory,
    autocast_dtype,
    optimizer_factory,
    set_learning_rate,
    torch_dtype,
)
from evener.modules.stage import Draw
from evener.modules.values import Microbatch, Value
from evener.schedules import forward_only
from evener.spec.model import ModelSpec

_NO_SIDE_CALLS: SideCalls = {}


@dataclass(frozen=True)
class TrainOptions:
    """What a plan leaves open; everything has a default.

    loss: see ``loss.Loss``. optimizer: makes one for some parameters; the job's by default.
    device: of this rank. input_name: the entry of the batch that the first layer is called with;
    other layers are given the entries that their ``forward`` names as parameters.
    split: how backwards are split; by default every stage has what suits it.
    side_work: what the plan's X actions do, by name: called with a ``SideCall``.
    side_tasks: by worker, other people's work for the time in which the worker waits.
    expected: a timeline of the plan, simulated or measured: how long bubbles are expected to last.
    """

    loss: Loss = field(default_factory=TokenLoss)
    optimizer: OptimizerFactory | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    input_name: str = "inputs"
    split: Way | None = None
    side_work: SideWork = field(default_factory=dict)
    side_tasks: Mapping[int, Sequence[SideTask]] = field(default_factory=dict)
    expected: Timeline | None = None

    def require_side_work(self, plan: Plan) -> None:
        """Raise UsageError unless side work and side tasks are those of the plan."""
        require_side_work(
            plan, side_work=self.side_work, side_tasks=self.side_tasks, expected=self.expected
        )


@dataclass(frozen=True)
class StepResult:
    """What a step gives; equal on all ranks.

    loss: per token (or sample) that counts. count: how many do. microbatch_losses: sums over what
    counts. grad_norm: before clipping, None where the job does not clip or nothing was updated.
    timeline: if it was asked for. freezing: what was frozen, None if nothing. outputs: if they were
    asked for, by microbatch; not equal on all ranks, but what each has: those of the last stage.
    Each update of an asynchronous run has its own result, with the timeline of the run.
    """

    loss: float
    count: int
    microbatch_losses: tuple[float, ...]
    grad_norm: float | None = None
    timeline: Timeline | None = None
    freezing: Freezing | None = None
    outputs: dict[int, Value] = field(default_factory=dict)


class Trainer:
    """One worker of a plan. All workers call the same methods with the same arguments.

    model: a ``ModelSpec`` (only this worker's layers are built), or blocks; see ``layer_source``.
    transport: made for the connections that ``trainer_connections`` lists.
    progress: told what the worker is doing, for whoever watches it.
    heritage: of a trainer of another plan, after which this one goes on.

    versions: the engine that keeps track of weight versions, of an asynchronous plan; else None.

    Side work is done in ``step`` only, in turn as the plan's cycle has it. Side tasks run in steps
    inside ``with trainer.side_tasks:``.

    Raises PlanError if the plan is for another model, and UsageError if plan and model disagree
    about shared parameters, if ranks start from different weights, if the plan asks for what
    the executor does not do, or if side work is given that is not the plan's.
    """

    def __init__(
        self,
        plan: Plan,
        model: Any,
        transport: Transport,
        options: TrainOptions | None = None,
        *,
        progress: Progress | None = None,
        heritage: Heritage | None = None,
    ) -> None:
        self.plan = plan
        self.options = TrainOptions() if options is None else options
        self.transport = transport
        self.options.require_side_work(plan)
        self.schedule = without_side_work(plan.replicated)
        held = None if heritage is None else heritage.model
        self.engine = build_engine(plan, model, transport, self.options, held=held)
        self._freezer = (
            None
            if plan.freezing is None
            else Freezer(plan, freezing_engine(plan, self.engine), transport)
        )
        self.versions = add_versions(plan, self.engine, transport, self.options)
        self.step_index = 0
        self.num_updates = 0
        if heritage is not None:
            take_over(self.engine, heritage.holdings)
            self.step_index, self.num_updates = heritage.step_index, heritage.num_updates
        own_tasks = self.options.side_tasks.get(transport.worker, ())
        self.side_tasks = SideTasks(own_tasks, worker=transport.worker)
        self._side_calls = side_calls(
            plan,
            transport.worker,
            stages=self.engine.model.stages,
            side_work=self.options.side_work,
            expected=self.options.expected,
        )
        self._step_loops: dict[tuple[int, int, bool], Loop] = {}
        self._progress = Progress(transport.worker) if progress is None else progress
        self._generators = KeyedGenerators(self.options.device)
        self._clock_offset_ns: int | None = None
        self._evaluation_loops: dict[int, Loop] = {}

    @property
    def model(self) -> WorkerModel:
        """The stages and parameters that this worker holds."""
        return self.engine.model

    @property
    def optimizers(self) -> dict[int, Optimizer]:
        """By stage; each updates the parameters of one STEP."""
        return self.engine.optimizers

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change it on this worker, from the next update on."""
        for optimizer in self.optimizers.values():
            set_learning_rate(optimizer, learning_rate)

    def step(self, batch: Batch, *, count: int | None = None, timeline: bool = False) -> StepResult:
        """Train on ``batch`` and update the parameters.

        batch: all of it, on every rank. count: what the loss is divided by, if not by what counts
            in this batch: give the sum over all batches that are accumulated.
        timeline: whether to tell when every action of every worker ran; it costs an exchange.
        """
        return self._run_updates([batch], count, timeline)[0]

    def steps(self, batches: Sequence[Batch], *, timeline: bool = False) -> tuple[StepResult, ...]:
        """Train on one batch after another, with an update for each and a flush at the end.

        batches: at most as many as the plan's schedule makes updates, which is more than one only
            where it is asynchronous.
        """
        if not 1 <= len(batches) <= self.schedule.updates.number:
            raise UsageError(_other_updates(len(batches), self.schedule))
        return self._run_updates(batches, None, timeline)

    def _run_updates(
        self, batches: Sequence[Batch], count: int | None, timeline: bool
    ) -> tuple[StepResult, ...]:
        place, step, number = self.place_in_cycle, self.step_index, len(batches)
        is_measuring = self._freezer is not None and self._freezer.is_measuring(step)
        loop = self._step_loop(place, number, timeline or is_measuring)
        results = self._train(loop, batches, count, self._side_calls[place])
        self.num_updates += number
        if not timeline and not is_measuring:
            return results
        measured = self._timeline(loop, place, number)
        if self._freezer is not None and is_measuring:
            self._freezer.note(step, measured)
        return tuple(replace(each, timeline=measured) for each in results) if timeline else results

    @property
    def place_in_cycle(self) -> int:
        """Which of the plan's ``steps`` the next call of ``step`` runs."""
        return self.num_updates % len(self.plan.steps)

    def accumulate(self, batch: Batch, *, count: int | None = None) -> StepResult:
        """Add the gradients of ``batch`` to those of the next step, and update nothing."""
        return self._train(self._accumulation_loop, [batch], count)[0]

    def evaluate(self, batch: Batch, *, outputs: bool = False) -> StepResult:
        """The loss of ``batch`` without dropout, gradients or update.

        A batch of fewer samples than the plan has microbatches is cut into one for each sample.
        """
        if outputs and self.plan.job.spread_head:
            raise UsageError("outputs cannot be kept", [_NO_LOGITS])
        num_microbatches = min(self.schedule.update_size, num_samples(batch))
        loop = self._evaluation_loops.get(num_microbatches)
        if loop is None:
            schedule = insert_messages(_first_forwards(self.schedule, num_microbatches))
            loop = self._loop(schedule, engine=self.engine)
            self._evaluation_loops[num_microbatches] = loop
        microbatches = cut(batch, num_microbatches)
        state = StepState(microbatches, [self._update(microbatches, None, draw=None)])
        state.keeps_outputs = outputs
        return self._run(loop, state, self.engine)[0]

    def _train(
        self,
        loop: Loop,
        batches: Sequence[Batch],
        count: int | None,
        calls: SideCalls = _NO_SIDE_CALLS,
    ) -> tuple[StepResult, ...]:
        parts = [cut(batch, self.schedule.update_size) for batch in batches]
        job = self.plan.job
        seed = job.seed if job.dropout_seed is None else job.dropout_seed
        updates = [
            self._update(part, count, Draw(seed, step, self._generators))
            for step, part in enumerate(parts, start=self.step_index)
        ]
        state = StepState(list(chain.from_iterable(parts)), updates)
        state.side_calls = calls
        freezing = None if self._freezer is None else self._freezer.begin_step(self.step_index)
        with self._generators.preserved():
            results = self._run(loop, state, self.versions or self.engine)
        self.step_index += len(batches)
        return tuple(replace(result, freezing=freezing) for result in results)

    def _update(
        self, microbatches: Sequence[Microbatch], count: int | None, draw: Draw | None
    ) -> UpdateState:
        counts = [self.options.loss.count(microbatch) for microbatch in microbatches]
        divisor = sum(counts) if count is None else count
        if divisor < 1:
            raise UsageError("the loss of this batch is not defined", [_NOTHING_COUNTS])
        return UpdateState(sum(counts), 1.0 / divisor, draw)

    def _run(
        self, loop: Loop, state: StepState, engine: TorchEngine | VersionedEngine
    ) -> tuple[StepResult, ...]:
        engine.begin_step(state)
        loop.run_step()
        losses, grad_norms = self._share(state)
        self.transport.flush()
        engine.end_step()
        outputs, size = joined(state.outputs), state.update_size
        results = []
        for index, (update, grad_norm) in enumerate(zip(state.updates, grad_norms, strict=True)):
            own = losses[index * size : (index + 1) * size]
            loss = sum(own) / update.count if update.count else 0.0
            results.append(StepResult(loss, update.count, own, grad_norm, outputs=outputs))
        return tuple(results)

    def _share(self, state: StepState) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
        """Every microbatch's loss and every norm, from the workers that have them to all."""
        number = len(state.updates)
        row = torch.zeros(len(state.microbatches) + number + 1, dtype=torch.float64)
        if state.losses:
            microbatches = torch.tensor([microbatch for _, microbatch, _ in state.losses])
            row.index_add_(0, microbatches, torch.stack(list(state.losses.values())).to(row))
        holders = self.schedule.workers_of_stage[-1]
        if state.grad_norms and self.transport.worker == holders[0]:
            row[-number - 1 :] = torch.tensor([*state.grad_norms, 1.0], dtype=torch.float64)
        row = row.to(self.options.device)
        everybody = tuple(range(self.transport.num_workers))
        if len(holders) > 1:
            self.transport.all_reduce(everybody, row).wait()
        elif len(everybody) > 1:
            self.transport.broadcast(row, holders[0]).wait()
        *values, has_norms = row.tolist()
        losses, grad_norms = values[:-number], values[-number:]
        return tuple(losses), tuple(grad_norms) if has_norms else (None,) * number

    def _step_loop(self, place: int, number: int, timed: bool) -> Loop:
        # Waiting for the device at every action makes times exact, and the step slower.
        synchronizes = timed and self.options.device.type == "cuda"
        loop = self._step_loops.get((place, number, synchronizes))
        if loop is None:
            synchronize = torch.cuda.synchronize if synchronizes else None
            loop = self._loop(
                self.plan.lowered(place, num_updates=number),
                synchronize,
                engine=self._learning_engine,
                is_step=True,
            )
            self._step_loops[place, number, synchronizes] = loop
        return loop

    @cached_property
    def _accumulation_loop(self) -> Loop:
        schedule = insert_messages(without_steps(self.schedule))
        return self._loop(schedule, engine=self._learning_engine)

    @property
    def _learning_engine(self) -> Engine:
        if self.versions is not None:
            return self.versions
        return self.engine if self._freezer is None else self._freezer.engine

    def _loop(
        self,
        schedule: Schedule,
        synchronize: Callable[[], None] | None = None,
        *,
        engine: Engine,
        is_step: bool = False,
    ) -> Loop:
        program = WorkerProgram(schedule, self.transport.worker)
        clock = WallClock(program, synchronize)
        return Loop(
            program,
            engine=engine,
            transport=self.transport,
            clock=clock,
            progress=self._progress,
            idle=self._idle(program, clock) if is_step else {},
        )

    def _idle(self, program: WorkerProgram, clock: WallClock) -> dict[int, Callable[[], None]]:
        """What this worker does in its bubbles."""
        expected, worker = self.options.expected, self.transport.worker
        if expected is None or not self.options.side_tasks.get(worker):
            return {}
        return harvests(
            [step.action for step in program],
            clock,
            tasks=self.side_tasks,
            bubbles_ns=bubbles_before(expected, worker),
        )

    def _timeline(self, loop: Loop, place: int, number: int) -> Timeline:
        clock = loop.clock
        assert isinstance(clock, WallClock), "a trainer's loops run on the wall clock"
        if self._clock_offset_ns is None:
            self._clock_offset_ns = clock_offset_ns(self.transport, machine=this_machine())
        schedule = self.plan.lowered(place, num_updates=number)
        return gather_timeline(self.transport, schedule, clock, self._clock_offset_ns)


def trainer_connections(
    plan: Plan,
) -> tuple[list[tuple[int, int]], list[tuple[int, ...]]]:
    """Who sends to whom and who reduces with whom, all kinds of steps of a ``Trainer`` included."""
    pairs, groups = connections(plan.lowered())
    everybody = tuple(range(plan.num_workers))
    if len(everybody) > 1:
        groups = sorted({*groups, everybody})
    return pairs, groups


def build_held(plan: Plan, model: Any, worker: int, options: TrainOptions) -> WorkerModel:
    """What a plan gives to a worker, as it is before training. Errors: see ``Trainer``."""
    autocast = autocast_dtype(plan.job.dtypes)
    source = _source(plan, model, options.device)
    return build_worker_model(
        plan.replicated,
        worker,
        source=source,
        partition=plan.partition,
        names=ParameterNames(source, plan.partition, plan.tied),
        device=options.device,
        autocast=autocast,
        split=options.split,
    )


def build_engine(
    plan: Plan,
    model: Any,
    transport: Transport,
    options: TrainOptions,
    *,
    held: WorkerModel | None = None,
) -> TorchEngine:
    """The engine of one worker of a plan; all workers call it together. Errors: see ``Trainer``.

    held: what ``build_held`` gives, if it has been built.
    """
    if held is None:
        held = build_held(plan, model, transport.worker, options)
    schedule = plan.replicated
    engine = TorchEngine(
        schedule,
        held,
        worker=transport.worker,
        loss=spread_loss(options.loss) if plan.job.spread_head else options.loss,
        device=options.device,
        input_name=options.input_name,
        clip_norm=plan.job.clip_norm,
        slice_tokens=plan.slice_tokens,
    )
    if engine.offload is not None:
        engine.offload.num_bytes = plan.offload_bytes
    holdings = transport.gather(held.describe())
    engine.count_norm_by(
        {name: who for name, who in owners(holdings).items() if holdings[who][name].learns}
    )
    if schedule.updates.number == 1:
        engine.optimizers = held.make_optimizers(_make_optimizer(plan, options))
    return engine


def add_versions(
    plan: Plan, engine: TorchEngine, transport: Transport, options: TrainOptions
) -> VersionedEngine | None:
    """What runs the engine where updates do not wait for one another; None where they do."""
    schedule = plan.replicated
    if schedule.updates.number == 1:
        return None
    make_optimizer = _make_optimizer(plan, options)
    return VersionedEngine(engine, schedule, worker=transport.worker, make_optimizer=make_optimizer)


def _make_optimizer(plan: Plan, options: TrainOptions) -> OptimizerFactory:
    return options.optimizer or optimizer_factory(plan.job.optimizer)


def freezing_engine(plan: Plan, engine: TorchEngine) -> FreezingEngine:
    """An engine of a plan that freezes; it runs ``engine``."""
    return FreezingEngine(engine, engine.model.stages, seed=plan.job.seed)


def _source(plan: Plan, model: Any, device: torch.device) -> LayerSource:
    if isinstance(model, ModelSpec):
        plan.require_model(model)
    dtype = torch_dtype(plan.job.dtypes.parameters)
    source = layer_source(model, dtype=dtype, device=device, seed=plan.job.seed)
    if len(source.names) != len(plan.layer_names):
        raise PlanError("the plan does not fit the model", [_other_layers(plan, len(source.names))])
    return source


def _first_forwards(schedule: Schedule, num_microbatches: int) -> Schedule:
    """The forwards of the first microbatches alone."""
    forwards = forward_only(schedule)
    workers = tuple(
        tuple(action for action in actions if action.microbatch in range(num_microbatches))
        for actions in forwards.workers
    )
    return replace(forwards, workers=workers, num_microbatches=num_microbatches)


_NO_LOGITS = (
    "the plan spreads the head over workers, none of which has whole logits; ask for the loss "
    "alone, or plan without spread_head"
)
_NOTHING_COUNTS = (
    "no token of it counts, so there is nothing to divide by; give targets that are not ignored"
)


def _other_updates(given: int, schedule: Schedule) -> str:
    number = schedule.updates.number
    return (
        f"{given} batches are given for {number} updates: a run of schedule {schedule.name} makes "
        f"1 to {number}, each with its own batch; give as many"
    )


def _other_layers(plan: Plan, num_layers: int) -> str:
    return (
        f'the plan is for the {len(plan.layer_names)} layers of model "{plan.model}", but the '
        f"model that was given has {num_layers}; plan for it, or give the model of the plan"
    )
