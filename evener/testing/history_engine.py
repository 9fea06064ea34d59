"""An engine whose tensors are fingerprints of all that went into them: any mix-up is seen.

A forward value is a hash of its cell and of the values that it was computed from, a gradient the
same, down to the first stage.  What each must be is known from the stage graph alone, so a value
of another microbatch, a message in the wrong order or an action done twice is noticed at once.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import TYPE_CHECKING

from evener.ir.action import Action, Kind
from evener.ir.schedule import Cell, Schedule

if TYPE_CHECKING:
    from torch import Tensor

    from evener.executor.transport import Handle, Transport

_PRIME = 1_000_003
_FORWARD, _BACKWARD = 1, 2


def fingerprint(*numbers: int) -> int:
    """A number below a million that depends on all numbers and their order."""
    value = 17
    for number in numbers:
        value = (value * 257 + number + 1) % _PRIME
    return value


class Histories:
    """What every value of a schedule must be, whoever computes it and when."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.output = cache(self._output)
        self.gradient = cache(self._gradient)

    def _output(self, cell: Cell) -> int:
        stage, microbatch, token_slice = cell
        inputs = [self.output((p, microbatch, token_slice)) for p in self._before(stage)]
        if token_slice:
            inputs.append(self.output((stage, microbatch, token_slice - 1)))
        return fingerprint(_FORWARD, stage, microbatch, token_slice or 0, *inputs)

    def _gradient(self, cell: Cell) -> int:
        stage, microbatch, token_slice = cell
        inputs = [self.gradient((s, microbatch, token_slice)) for s in self._after(stage)]
        if token_slice is not None and token_slice + 1 < self.schedule.num_slices:
            inputs.append(self.gradient((stage, microbatch, token_slice + 1)))
        return fingerprint(_BACKWARD, self.output(cell), *inputs)

    def _before(self, stage: int) -> tuple[int, ...]:
        return tuple(sorted(self.schedule.predecessors[stage]))

    def _after(self, stage: int) -> tuple[int, ...]:
        return tuple(sorted(self.schedule.successors[stage]))

    def total(self, stages: Iterable[int], update: int) -> int:
        """The gradients of all microbatches of these stages in an update, summed."""
        wanted, size = set(stages), self.schedule.update_size
        return sum(
            self.gradient(cell)
            for cell in self.schedule.runner
            if cell[0] in wanted and cell[1] // size == update
        )


class HistoryEngine:
    """One worker's ``Engine``. Raises AssertionError as soon as a value is not what it must be."""

    def __init__(self, histories: Histories, worker: int) -> None:
        self._histories = histories
        self._schedule = histories.schedule
        self._worker = worker
        self._outputs: dict[Cell, int] = {}  # computed here
        self._gradients: dict[Cell, int] = {}
        self._received: dict[tuple[Cell, int, bool], int] = {}  # by cell and other stage
        self._activations: dict[Cell, bool] = {}  # whether it is there, or must be recomputed
        self._in_host: dict[Cell, bool | None] = {}  # what was there, once the copy has ended
        # By (stage, update): summed weight gradients of this worker, and of all.
        self._own: dict[tuple[int, int], int] = {}
        self._reduced: dict[tuple[int, int], int] = {}
        self._stepped: set[tuple[int, int]] = set()
        self._shared: set[tuple[int, int]] = set()
        self._done: set[Action] = set()

    def signature(self, microbatch: int) -> Hashable:
        return microbatch % 2  # two shapes take turns

    def run(self, action: Action) -> None:
        assert action not in self._done, f"{action} is done twice"
        self._done.add(action)
        _COMPUTE[action.kind](self, action)

    def _forward(self, action: Action) -> None:
        cell = _cell(action)
        before, microbatch, token_slice = self._schedule.predecessors, cell[1], cell[2]
        inputs = [
            self._value(cell, (stage, microbatch, token_slice), forward=True)
            for stage in sorted(before[cell[0]])
        ]
        if token_slice:
            inputs.append(self._outputs[cell[0], microbatch, token_slice - 1])
        self._outputs[cell] = fingerprint(_FORWARD, cell[0], microbatch, token_slice or 0, *inputs)
        assert self._outputs[cell] == self._histories.output(cell), f"{action}: wrong inputs"
        recomputes = action._replace(kind=Kind.R) in self._schedule.workers[self._worker]
        self._activations[cell] = not recomputes

    def _recompute(self, action: Action) -> None:
        assert not self._activations[_cell(action)], f"{action}: nothing is to be recomputed"
        self._activations[_cell(action)] = True

    def _input_gradient(self, action: Action) -> None:
        cell = _cell(action)
        stage, microbatch, token_slice = cell
        inputs = [
            self._value(cell, (other, microbatch, token_slice), forward=False)
            for other in sorted(self._schedule.successors[stage])
        ]
        if token_slice is not None and token_slice + 1 < self._schedule.num_slices:
            inputs.append(self._gradients[stage, microbatch, token_slice + 1])
        assert self._activations.pop(cell), f"{action}: the activation is not there"
        self._gradients[cell] = fingerprint(_BACKWARD, self._outputs[cell], *inputs)
        assert self._gradients[cell] == self._histories.gradient(cell), f"{action}: wrong inputs"

    def _weight_gradient(self, action: Action) -> None:
        key = action.stage, self._schedule.update_of(action)
        self._own[key] = self._own.get(key, 0) + self._gradients[_cell(action)]

    def _backward(self, action: Action) -> None:
        self._input_gradient(action)
        self._weight_gradient(action)

    def _step(self, action: Action) -> None:
        stage, update = key = action.stage, self._schedule.update_of(action)
        total = self._reduced.get(key, self._own[key])
        expected = self._histories.total([stage], update)
        assert total == expected, f"{action}: gradients are not complete"
        if self._worker != self._schedule.workers_of_stage[stage][0]:
            shares = action._replace(kind=Kind.SHARE) in self._schedule.workers[self._worker]
            assert shares == (key in self._shared), f"{action}: the new weights are not there"
        self._stepped.add(key)

    def _free(self, action: Action) -> None:
        cell = _cell(action)
        assert self._in_host.pop(cell) is None, f"{action}: the copy has not been waited for"
        self._in_host[cell] = self._activations.pop(cell)

    def _side_work(self, action: Action) -> None:
        """Nothing depends on it."""

    def _value(self, cell: Cell, source: Cell, *, forward: bool) -> int:
        """The output or gradient of a neighbour stage, from here or from a message."""
        own = self._outputs if forward else self._gradients
        if source in own:
            return own[source]
        return self._received.pop((cell, source[0], forward))

    def payload(self, action: Action) -> "tuple[Tensor, ...]":
        import torch

        cell = _cell(action)
        value = self._outputs[cell] if action.kind is Kind.SEND_F else self._gradients[cell]
        # The shape follows the signature, and a second tensor says who speaks.
        return torch.full((1 + cell[1] % 2,), value), torch.tensor(action.stage, dtype=torch.int32)

    def accept(self, action: Action, tensors: "tuple[Tensor, ...]") -> None:
        value, source = tensors
        cell, forward = _cell(action), action.kind is Kind.RECV_F
        assert value.shape == (1 + cell[1] % 2,)
        key = (cell, int(source), forward)
        assert key not in self._received, f"{action} came twice"
        self._received[key] = int(value[0])

    def collective(
        self, action: Action, transport: "Transport", members: tuple[int, ...]
    ) -> "Handle":
        import torch

        stage, update = key = action.stage, self._schedule.update_of(action)
        stages = {stage} if action.peer is None else {stage, action.peer}
        expected = self._histories.total(stages, update)
        if action.kind is Kind.NORM:
            stages = {own for own, _ in self._own}
            expected = self._histories.total(range(self._schedule.num_stages), update)
        own_total = sum(self._own.get((each, update), 0) for each in stages)
        if action.kind is Kind.SHARE:
            own_total = expected if key in self._stepped else 0
        total = torch.tensor([own_total])
        handle = transport.all_reduce(members, total)

        def wait() -> "tuple[Tensor, ...]":
            handle.wait()
            assert int(total) == expected, f"{action}: {int(total)} instead of {expected}"
            if action.kind is Kind.REDUCE and action.peer is None:
                self._reduced[key] = expected
            elif action.kind is Kind.SHARE:
                self._shared.add(key)
            return ()

        return _Waiting(wait)

    def copy(self, action: Action) -> "Handle":
        cell = _cell(action)

        def wait() -> "tuple[Tensor, ...]":
            if action.kind is Kind.OFFLOAD:
                assert cell in self._activations, f"{action}: there is nothing to copy"
                self._in_host[cell] = None
            else:
                held = self._in_host.pop(cell)
                assert held is not None, f"{action}: the copy was not waited for"
                self._activations[cell] = held
            return ()

        return _Waiting(wait)

    def finish(self) -> None:
        """Check that every compute action was done and every message was used."""
        own = {a for a in self._schedule.workers[self._worker] if a.kind in _COMPUTE}
        assert self._done == own
        assert not self._received
        assert not self._activations
        assert not self._in_host


_COMPUTE: dict[Kind, Callable[[HistoryEngine, Action], None]] = {
    Kind.F: HistoryEngine._forward,
    Kind.R: HistoryEngine._recompute,
    Kind.B: HistoryEngine._backward,
    Kind.I: HistoryEngine._input_gradient,
    Kind.W: HistoryEngine._weight_gradient,
    Kind.STEP: HistoryEngine._step,
    Kind.FREE: HistoryEngine._free,
    Kind.X: HistoryEngine._side_work,
}


def _cell(action: Action) -> Cell:
    assert action.microbatch is not None
    return action.stage, action.microbatch, action.slice


class _Waiting:
    def __init__(self, wait: "Callable[[], tuple[Tensor, ...]]") -> None:
        self.wait = wait
