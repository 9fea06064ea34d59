"""The engine of a real run: what the actions of a schedule do to PyTorch modules."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from evener.errors import UsageError
from evener.executor.batch import signature, to_device
from evener.executor.gradients import GlobalNorm, NormInFlight, clip, start_sum
from evener.executor.host_copies import host_copies
from evener.executor.offload import Offload
from evener.executor.routes import cell_of, copy_of, routes_of
from evener.executor.side_work import SideCalls
from evener.executor.slices import Slices
from evener.executor.transport import Done, Handle, Transport
from evener.executor.worker_model import WorkerModel
from evener.ir.action import Action, Kind
from evener.ir.schedule import Cell, Schedule
from evener.modules.backward_split import Deferred
from evener.modules.buffers import BufferWatch, Changed, replayed
from evener.modules.loss import Loss
from evener.modules.stage import Draw, Pass, as_leaves
from evener.modules.values import (
    Microbatch,
    Skeleton,
    Value,
    flatten,
    unflatten,
)


@dataclass(frozen=True)
class UpdateState:
    """One optimizer update.

    count: how much counts in the losses of its microbatches. loss_scale: what a loss is multiplied
    by before its backward, one over all that counts in the update.
    draw: the random numbers; None when evaluating, then no gradients are made either.
    """

    count: int
    loss_scale: float
    draw: Draw | None


@dataclass
class StepState:
    """What one run of a schedule has in hand.

    microbatches: all of them, by index. updates: each has as many of them, in order.
    side_calls: what the X actions of the step do.
    losses: per cell of the last stage that is here, the loss summed over what counts.
    outputs: the same for the last stage's outputs, if they are kept. grad_norms: of each NORM.
    """

    microbatches: Sequence[Microbatch]
    updates: Sequence[UpdateState]
    keeps_outputs: bool = False
    side_calls: SideCalls = field(default_factory=dict)
    losses: dict[Cell, Tensor] = field(default_factory=dict)
    outputs: dict[Cell, Value] = field(default_factory=dict)
    grad_norms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.update_size = len(self.microbatches) // len(self.updates)

    @property
    def learns(self) -> bool:
        return self.updates[0].draw is not None

    def place(self, microbatch: int) -> tuple[UpdateState, int]:
        """The update of a microbatch, and which one of it this is."""
        update, index = divmod(microbatch, self.update_size)
        return self.updates[update], index


_NO_STEP = StepState((), (UpdateState(0, 0.0, None),))


class TorchEngine:
    """Runs the stages of one worker (see ``engine.Engine``).

    schedule: the plan's. model: what this worker holds. input_name: the entry of the batch that
        the first layer is called with. optimizers: by stage. clip_norm: the gradients are scaled
        down to this global norm by NORM. slice_tokens: of each slice, if there are several.
    offload: what moves activations to host memory, if the schedule does.
    on_gradients: called with complete gradients by name, before they are clipped and used.

    Raises UsageError where slices are of unknown length, and for stage graphs with other ends than
    the first and the last stage.
    """

    def __init__(
        self,
        schedule: Schedule,
        model: WorkerModel,
        *,
        worker: int,
        loss: Loss,
        device: torch.device,
        input_name: str = "inputs",
        clip_norm: float | None = None,
        slice_tokens: Sequence[int] | None = None,
    ) -> None:
        _require_supported(schedule, slice_tokens)
        self.model = model
        self.optimizers: dict[int, Optimizer] = {}
        self.on_gradients: Callable[[Mapping[str, nn.Parameter]], None] | None = None
        self._loss, self._input_name, self._clip_norm = loss, input_name, clip_norm
        self._worker, self._device = worker, device
        self._last_stage = schedule.num_stages - 1
        self._recomputed = {
            cell_of(action) for action in schedule.workers[worker] if action.kind is Kind.R
        }
        self._global_norm = GlobalNorm({}, worker)
        self._runs: dict[Kind, Callable[[Cell], None]] = {
            Kind.F: self._forward,
            Kind.R: self._recompute,
            Kind.B: self._backward,
            Kind.I: self._input_backward,
            Kind.W: self._weight_backward,
        }
        self.offload: Offload | None = None
        self._step = _NO_STEP
        self._is_training: bool | None = None
        self._signatures: list[Hashable] = []
        self._on_device: dict[int, Microbatch] = {}
        routes = self._routes = routes_of(schedule, worker)
        self._arrived, self._gradients = routes.arrived, routes.gradients
        self.payload, self.accept = routes.payload, routes.accept
        self._hand_on = routes.hand_on
        # What waits for the cell's next action, or for its message.
        self._passes: dict[Cell, Pass] = {}
        self._replays: dict[Cell, Changed] = {}
        self._deferred: dict[Cell, Deferred | None] = {}
        # What slices need is chosen here, so that whole microbatches pay nothing for it.
        self._slices: Slices | None = None
        self._data, self._compute = self._microbatch, self._compute_whole
        self._received: Callable[[Cell, Sequence[Tensor]], Sequence[Tensor]] = self._gradients.pop
        if schedule.num_slices > 1:
            assert slice_tokens is not None, "it was required"
            self._slices = Slices(slice_tokens, input_name=input_name, stages=model.stages)
            self._data, self._compute = self._part, self._compute_slice
            self._received = self._received_for_slice
        if Kind.OFFLOAD in schedule.kinds:
            self.offload = self._offload_of(schedule.workers[worker])

    def _offload_of(self, actions: Sequence[Action]) -> Offload:
        """Have forwards record what they save; engines that offload nothing have none of it."""
        offload = Offload(
            actions,
            copies=host_copies(self._device),
            cell_of=cell_of,
            passes=self._passes,
            arrived=self._arrived,
            kept=self._kept,
        )
        self._runs[Kind.F] = offload.forward(self._runs[Kind.F])
        self._runs[Kind.R] = offload.recompute(self._runs[Kind.R])
        self._runs[Kind.FREE] = offload.free
        return offload

    def count_norm_by(self, owner: Mapping[str, int]) -> None:
        """Say which worker counts which parameter in the global norm."""
        self._global_norm = GlobalNorm(owner, self._worker)

    @property
    def num_in_flight(self) -> int:
        """How many forwards wait for their backward, those between I and W included."""
        return len(self._passes) + len(self._deferred)

    # Around a step

    def begin_step(self, step: StepState) -> None:
        """Take over the data of a step."""
        self._step = step
        self._signatures = [(step.learns, signature(each)) for each in step.microbatches]
        if self._slices is not None:
            cuts = self._slices.begin_step(step.microbatches, self._loss)
            self._signatures = list(zip(self._signatures, cuts, strict=True))
        if step.learns != self._is_training:
            self._is_training = step.learns
            for stage in self.model.stages.values():
                stage.train(step.learns)

    def end_step(self) -> None:
        """Let the data go; nothing may be left over."""
        left = (self._arrived, self._gradients, self._passes, self._replays, self._deferred)
        assert not any(left), f"left over at the end of the step: {left}"
        assert self._routes.is_empty, "something was not sent"
        if self._slices is not None:
            self._slices.end_step()
        assert self.offload is None or self.offload.is_idle, "something is still in host memory"
        self._step = _NO_STEP
        self._on_device = {}

    # What the loop calls

    def signature(self, microbatch: int) -> Hashable:
        return self._signatures[microbatch]

    def run(self, action: Action) -> None:
        run = self._runs.get(action.kind)
        if run is not None:
            run(cell_of(action))
        elif action.kind is Kind.STEP:
            self._update(action.stage)
        else:
            self._step.side_calls[action]()

    def collective(self, action: Action, transport: Transport, members: tuple[int, ...]) -> Handle:
        if action.kind is Kind.REDUCE:
            parameters = self.model.reduced[action.stage, action.peer]
            return start_sum(parameters, transport, members) if parameters else Done()
        if self.on_gradients is not None:
            self.on_gradients(self.model.parameters)
        in_flight = self._global_norm.start(self.model.parameters, transport, members, self._device)
        return _Clipping(self, in_flight)

    def copy(self, action: Action) -> Handle:
        assert self.offload is not None, "only schedules that offload have copies"
        return self.offload.start(action)

    # Forward

    def _forward(self, cell: Cell) -> None:
        stage = cell[0]
        if stage == 0:
            # Layers may change it in place, but the batch is the user's.
            arrived = copy_of(flatten(self._data(cell)[self._input_name]))
        else:
            arrived = self._arrived.pop(cell)
        if self._step.learns and cell in self._recomputed:
            output = self._first_of_two(cell, arrived)
        else:
            output = self._compute(cell, arrived, self._step.learns)
        if stage < self._last_stage:
            self._hand_on(cell, output)
        elif self._step.keeps_outputs:
            self._step.outputs[cell] = output

    def _first_of_two(self, cell: Cell, arrived: tuple[Skeleton, list[Tensor]]) -> Value:
        """A forward that R will repeat: it must find again what it finds now."""
        entries = [each for each in self._data(cell).values() if isinstance(each, Tensor)]
        versions = [entry._version for entry in entries]
        watch = BufferWatch(self.model.stages[cell[0]])
        self._arrived[cell] = arrived
        output = self._compute(cell, copy_of(arrived), learns=False)
        if versions != [entry._version for entry in entries]:
            raise UsageError("a forward cannot be recomputed", [_changes_the_batch(cell[0])])
        self._replays[cell] = watch.changed()
        return output

    def _recompute(self, cell: Cell) -> None:
        with replayed(self._replays.pop(cell)):
            self._compute(cell, self._arrived.pop(cell), learns=True)

    def _compute_whole(
        self, cell: Cell, arrived: tuple[Skeleton, list[Tensor]], learns: bool
    ) -> Value:
        """Run the layers; where a backward will follow, remember what it needs."""
        index, microbatch, _ = cell
        stage, step = self.model.stages[index], self._step
        update, place = step.place(microbatch)
        data = self._data(cell)
        is_last = index == self._last_stage
        with torch.set_grad_enabled(learns), stage.computing(self._device):
            value, leaves = as_leaves(*arrived, learns=learns and index > 0)
            output = stage(value, data, update.draw, place)
            if is_last:
                loss = self._loss.total(output, data)
                step.losses[cell] = loss.detach()
        if learns:
            roots = [loss * update.loss_scale] if is_last else flatten(output)[1]
            self._passes[cell] = stage.begin_pass(leaves, roots, is_loss=is_last)
        return output

    def _compute_slice(
        self, cell: Cell, arrived: tuple[Skeleton, list[Tensor]], learns: bool
    ) -> Value:
        """The same with what earlier slices hand on, to which the backward leads, too."""
        assert self._slices is not None, "there are slices"
        stage, part = self.model.stages[cell[0]], self._data(cell)
        if self._slices.needs_proof(cell):
            skeleton, tensors = copy_of(arrived)
            with stage.computing(self._device):
                self._slices.prove(cell, stage, unflatten(skeleton, iter(tensors)), part)
        with self._slices.forward(cell, part) as context:
            output = self._compute_whole(cell, arrived, learns)
        handed_on = context.close()
        if learns:
            stage.lead_to(self._passes[cell], handed_on)
            self._slices.keep(cell, context)
        elif not self._step.learns:
            self._slices.forget(cell)
        return output

    # Backward

    def _backward(self, cell: Cell) -> None:
        forward = self._passes.pop(cell)
        self.model.stages[cell[0]].backward(forward, self._received(cell, ()))
        self._hand_back(cell, forward)

    def _input_backward(self, cell: Cell) -> None:
        forward = self._passes.pop(cell)
        stage = self.model.stages[cell[0]]
        self._deferred[cell] = stage.input_backward(forward, self._received(cell, ()))
        self._hand_back(cell, forward)

    def _weight_backward(self, cell: Cell) -> None:
        deferred = self._deferred.pop(cell)
        if deferred is not None:
            deferred.run()

    def _received_for_slice(self, cell: Cell, default: Sequence[Tensor]) -> Sequence[Tensor]:
        assert self._slices is not None, "there are slices"
        return [*self._gradients.pop(cell, default), *self._slices.gradients(cell)]

    def _hand_back(self, cell: Cell, forward: Pass) -> None:
        if cell[0] > 0:
            self._routes.hand_back(cell, forward.input_gradients())

    # Update

    def _update(self, stage: int) -> None:
        stepped = self.model.stepped[stage]
        self.report_gradients(stepped)
        if stage in self.optimizers:
            self.optimizers[stage].step()
        for parameter in stepped.values():
            parameter.grad = None

    def _clip(self, norm: float) -> None:
        self._step.grad_norms.append(norm)
        if self._clip_norm is not None:
            clip(self.model.parameters, norm, self._clip_norm)

    def report_gradients(self, stepped: Mapping[str, nn.Parameter]) -> None:
        """Tell who asked of the gradients that a STEP uses, unless NORM has done so."""
        if self.on_gradients is not None and self._clip_norm is None:
            self.on_gradients(stepped)

    def _part(self, cell: Cell) -> Microbatch:
        assert self._slices is not None, "there are slices"
        return self._slices.part(cell, self._microbatch(cell))

    def _kept(self, cell: Cell) -> Iterator[Tensor]:
        """What others hold of that with which saved tensors of a cell may share memory."""
        yield from self.model.stages[cell[0]].parameters()
        yield from self.model.stages[cell[0]].buffers()
        entries = self._microbatch(cell).values()
        yield from (entry for entry in entries if isinstance(entry, Tensor))
        if self._slices is not None:
            yield from self._slices.shared(cell)

    def _microbatch(self, cell: Cell) -> Microbatch:
        index = cell[1]
        found = self._on_device.get(index)
        if found is None:
            found = to_device(self._step.microbatches[index], self._device)
            self._on_device[index] = found
        return found


@dataclass
class _Clipping:
    """A NORM in flight: once waited for, the gradients are clipped."""

    engine: TorchEngine
    in_flight: NormInFlight

    def wait(self) -> tuple[Tensor, ...]:
        self.engine._clip(self.in_flight.norm())
        return ()


def _require_supported(schedule: Schedule, slice_tokens: Sequence[int] | None) -> None:
    wrong = []
    if len(slice_tokens or (0,)) != schedule.num_slices:
        wrong.append(_other_slices(schedule.num_slices, slice_tokens))
    first = [stage for stage, before in enumerate(schedule.predecessors) if not before]
    last = [stage for stage, behind in enumerate(schedule.successors) if not behind]
    if (first, last) != ([0], [schedule.num_stages - 1]):
        wrong.append(_other_ends(first, last))
    if wrong:
        raise UsageError(f"the executor does not run schedule {schedule.name} yet", wrong)


def _other_ends(first: list[int], last: list[int]) -> str:
    return (
        f"its stages begin with {first} and end with {last}; let stage 0 alone take the batch, and "
        "the last one alone the loss"
    )


def _other_slices(num_slices: int, slice_tokens: Sequence[int] | None) -> str:
    given = "not given" if slice_tokens is None else f"given for {len(slice_tokens)} slices"
    return (
        f"it has {num_slices} slices, but the numbers of their tokens are {given}; set the plan's "
        f"slice_tokens to {num_slices} numbers"
    )


def _changes_the_batch(stage: int) -> str:
    return (
        f"a layer of stage {stage} changes an entry of the batch in place, so its second forward "
        "would find another one; change a copy, or plan without recomputing"
    )
