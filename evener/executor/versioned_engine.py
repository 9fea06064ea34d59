"""The engine of a schedule of several updates: every action finds the weights that it is to read.

The optimizer works on tensors of its own that share their memory with the parameters.  So a
backward may run with newer weights than its forward, as AMDP wants it, which torch takes for a
mistake where it sees the parameters change.  Where versions are stashed (PipeDream-2BW), each has
its own memory, and the parameters point to the one that is read.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from evener.executor.torch_engine import StepState, TorchEngine
from evener.executor.transport import Handle, Transport
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.ir.versions import READS_WEIGHTS


class VersionedEngine:
    """An engine (see ``engine.Engine``) around the ``TorchEngine`` of one worker.

    It gives that engine its optimizers, for the stages of which this worker is the first: the
    others of a stage are sent the new weights.

    read: of the last run, the version that each F, R, B, I and W found: how many STEPs of its
        stage the run had done to these weights.
    """

    def __init__(
        self,
        engine: TorchEngine,
        schedule: Schedule,
        *,
        worker: int,
        make_optimizer: Callable[[list[nn.Parameter]], Optimizer],
    ) -> None:
        self.read: dict[Action, int] = {}
        self._engine = engine
        self._schedule = schedule
        self._owner = {stage: schedule.workers_of_stage[stage][0] for stage in engine.model.stages}
        self._shared = {stage: _shared(engine, schedule, stage) for stage in self._owner}
        num_kept = 1 + schedule.updates.staleness if schedule.updates.stashed else 1
        self._kept = _Kept(engine.model.parameters.values(), num_kept)
        self._updated = {
            stage: _updated(stepped)
            for stage, stepped in engine.model.stepped.items()
            if stepped and self._owner[stage] == worker
        }
        engine.optimizers = {
            stage: make_optimizer(list(twins.values())) for stage, twins in self._updated.items()
        }
        self._received: dict[int, list[Tensor]] = {}
        self._sharing = {stage: _All([]) for stage in self._owner}
        # Versions are counted from the first run on; a run begins with version _first.
        self._first = 0
        self._latest = dict.fromkeys(self._owner, 0)

    def begin_step(self, state: StepState) -> None:
        """Take over the data of a run."""
        self._engine.begin_step(state)
        self._first = max(self._latest.values(), default=0)
        self.read = {}

    def end_step(self) -> None:
        """Leave the parameters as the last update has made them."""
        self._kept.show(max(self._latest.values(), default=0))
        self._engine.end_step()

    # What the loop calls

    def signature(self, microbatch: int) -> Hashable:
        return self._engine.signature(microbatch)

    def run(self, action: Action) -> None:
        if action.kind is Kind.STEP:
            self._update(action.stage)
        else:
            if action.kind in READS_WEIGHTS:
                self._prepare(action)
            self._engine.run(action)

    def _prepare(self, action: Action) -> None:
        """Have the parameters be those that the action is to read."""
        updates, version = self._schedule.updates, self._latest[action.stage]
        if updates.stashed:
            update = self._schedule.update_of(action)
            latest = version
            version = self._first + max(0, update - updates.staleness)
            assert latest - version <= updates.staleness, f"{action}: its weights are gone"
            self._kept.show(version)
        self.read[action] = version - self._first

    def payload(self, action: Action) -> tuple[Tensor, ...]:
        return self._engine.payload(action)

    def accept(self, action: Action, tensors: tuple[Tensor, ...]) -> None:
        self._engine.accept(action, tensors)

    def collective(self, action: Action, transport: Transport, members: tuple[int, ...]) -> Handle:
        if action.kind is not Kind.SHARE:
            return self._engine.collective(action, transport, members)
        stage = action.stage
        source = self._owner[stage]
        tensors = [self._kept.of(each, self._latest[stage]) for each in self._shared[stage]]
        rows = _rows(tensors)
        if source != transport.worker:
            self._received[stage] = rows
        # Nobody on this worker waits for what it sends, which would be kept until the run ends.
        self._sharing[stage].wait()
        self._sharing[stage] = _All([transport.broadcast(row, source, members) for row in rows])
        return self._sharing[stage]

    def copy(self, action: Action) -> Handle:
        return self._engine.copy(action)

    @torch.no_grad()
    def _update(self, stage: int) -> None:
        """From the latest version of a stage to the next."""
        version = self._latest[stage]
        stepped = self._engine.model.stepped[stage]
        self._engine.report_gradients(stepped)
        if stage in self._received:
            targets = [self._kept.of(each, version + 1) for each in self._shared[stage]]
            _copy_rows(self._received.pop(stage), targets)
        elif stage in self._updated:
            for name, twin in self._updated[stage].items():
                twin.data = self._kept.next_after(stepped[name], version)
                twin.grad = stepped[name].grad
            self._engine.optimizers[stage].step()
            for twin in self._updated[stage].values():
                twin.grad = None
        for parameter in stepped.values():
            parameter.grad = None
        self._latest[stage] = version + 1


class _Kept:
    """The memory of the last few versions of a worker's parameters."""

    def __init__(self, parameters: Iterable[nn.Parameter], num_kept: int) -> None:
        self._num_kept = num_kept
        self._memory = {
            each: [each.data, *(each.data.clone() for _ in range(num_kept - 1))]
            for each in parameters
        }
        self._shown = 0

    def of(self, parameter: nn.Parameter, version: int) -> Tensor:
        return self._memory[parameter][version % self._num_kept]

    def next_after(self, parameter: nn.Parameter, version: int) -> Tensor:
        """Where the next version goes, with the values of this one in it."""
        following = self.of(parameter, version + 1)
        if self._num_kept > 1:
            following.copy_(self.of(parameter, version))
        return following

    def show(self, version: int) -> None:
        """Let the parameters be those of a version."""
        if self._num_kept > 1 and version != self._shown:
            for parameter in self._memory:
                parameter.data = self.of(parameter, version)
        self._shown = version


@dataclass
class _All:
    """Several collectives as one; lets go of them once they have ended."""

    handles: list[Handle]

    def wait(self) -> tuple[Tensor, ...]:
        while self.handles:
            self.handles.pop().wait()
        return ()


def _updated(stepped: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """What the optimizer updates: other parameters in the same memory."""
    return {name: nn.Parameter(parameter.data) for name, parameter in stepped.items()}


def _shared(engine: TorchEngine, schedule: Schedule, stage: int) -> list[nn.Parameter]:
    """What the first worker of a stage sends to the others: all that its STEP updates."""
    owner = schedule.workers_of_stage[stage][0]
    found = list(engine.model.reduced[stage, None])
    for (first, second), parameters in engine.model.reduced.items():
        # Parameters of two stages on one worker belong to the STEP of the first.
        with_first = owner in schedule.workers_of_stage[first]
        if second is not None and (stage == first or (stage == second and not with_first)):
            found += parameters
    return found


def _by_type(tensors: Sequence[Tensor]) -> dict[torch.dtype, list[Tensor]]:
    found: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype, []).append(tensor)
    return found


def _rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies in one row per type."""
    return [torch.cat([each.flatten() for each in group]) for group in _by_type(tensors).values()]


def _copy_rows(rows: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for row, group in zip(rows, _by_type(targets).values(), strict=True):
        pieces = row.split([target.numel() for target in group])
        for piece, target in zip(pieces, group, strict=True):
            target.copy_(piece.view_as(target))
