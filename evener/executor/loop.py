"""The run loop: the list of a worker, action by action. There is no other."""

from collections.abc import Callable, Mapping
from functools import partial

from evener.errors import UsageError
from evener.executor.clock import Clock
from evener.executor.engine import Engine
from evener.executor.failure import Progress, failed
from evener.executor.transport import Handle, Transport
from evener.interp.worker import Step, WorkerProgram
from evener.ir.action import Action, Kind
from evener.ir.rules import RULES, Stream

_SENDS = frozenset({Kind.SEND_F, Kind.SEND_B})
_NOT_RUN = frozenset({Kind.GATHER, Kind.RELEASE})


class Loop:
    """Runs the steps of one worker.

    What does not change between steps is looked up once, here: a step is a list of calls.
    Receives are posted where the list has them and waited for right before the first action that
    needs them; sends are never waited for.

    idle: by position of a compute action, what to do before its receives are waited for; by
        ``len(program)``, what to do once all is done.

    Raises UsageError for kinds of actions that the executor does not run.
    """

    def __init__(
        self,
        program: WorkerProgram,
        *,
        engine: Engine,
        transport: Transport,
        clock: Clock,
        progress: Progress | None = None,
        idle: Mapping[int, Callable[[], None]] | None = None,
    ) -> None:
        unknown = sorted({str(step.action) for step in program if step.action.kind in _NOT_RUN})
        if unknown:
            raise UsageError(*_not_run(program.worker, unknown))
        self.clock = clock
        self._program = program
        self._engine = engine
        self._transport = transport
        self._progress = Progress(program.worker) if progress is None else progress
        self._idle = {} if idle is None else idle
        # What was started and not yet waited for, by position.
        self._handles: list[Handle | None] = [None] * len(program)
        self._positions = {step.action: step.position for step in program}
        self._takes = {
            step.action: self._take(step.position, step.action)
            for step in program
            if RULES[step.action.kind].stream is not Stream.COMPUTE
            and step.action.kind not in _SENDS
        }
        self._calls = [self._call(step) for step in program]
        self._calls += self._takes.values()  # what nobody in the list waits for
        if len(program) in self._idle:
            self._calls.append(self._idle[len(program)])

    def run_step(self) -> None:
        """Run every action once.

        Raises ExecutionError that names rank, stage, microbatch and action.
        """
        progress = self._progress
        progress.step += 1
        self.clock.begin_step()
        try:
            for call in self._calls:
                call()
        except Exception as error:
            raise failed(progress.place, error) from error
        progress.action = None

    def _call(self, step: Step) -> Callable[[], None]:
        position, action, waits_for = step
        # Whoever comes first in the list takes it over; the later ones find it done.
        takes = [self._takes.pop(need) for need in waits_for if need in self._takes]
        stream = RULES[action.kind].stream
        if stream is Stream.COMPUTE:
            if takes and position in self._idle:
                takes.insert(0, self._idle[position])
            return self._compute(position, action, takes, self._positions_of(waits_for))
        if stream is not Stream.MESSAGE:
            return self._beside(position, action, takes)
        assert not takes
        if action.kind in _SENDS:
            return self._send(position, action)
        return self._receive(position, action)

    def _positions_of(self, actions: tuple[Action, ...]) -> tuple[int, ...]:
        return tuple(self._positions[action] for action in actions)

    def _compute(
        self,
        position: int,
        action: Action,
        takes: list[Callable[[], None]],
        needs: tuple[int, ...],
    ) -> Callable[[], None]:
        progress, compute = self._progress, self.clock.compute
        run = partial(self._engine.run, action)

        def call() -> None:
            progress.action = action
            for take in takes:
                take()
            compute(position, run, needs)

        return call

    def _send(self, position: int, action: Action) -> Callable[[], None]:
        progress, engine, clock = self._progress, self._engine, self.clock
        send, peer = self._transport.send, self._program.peer_worker(action)
        microbatch, message = action.microbatch, action._replace(microbatch=None)
        assert microbatch is not None

        def call() -> None:
            progress.action = action
            tensors = clock.sent(position, engine.payload(action))
            send(peer, (message, engine.signature(microbatch)), tensors)

        return call

    def _receive(self, position: int, action: Action) -> Callable[[], None]:
        progress, engine, handles = self._progress, self._engine, self._handles
        receive, peer = self._transport.receive, self._program.peer_worker(action)
        microbatch, message = action.microbatch, action._replace(microbatch=None)
        assert microbatch is not None

        def call() -> None:
            progress.action = action
            handles[position] = receive(peer, (message, engine.signature(microbatch)))

        return call

    def _beside(
        self, position: int, action: Action, takes: list[Callable[[], None]]
    ) -> Callable[[], None]:
        progress, clock, handles = self._progress, self.clock, self._handles
        if RULES[action.kind].stream is Stream.COLLECTIVE:
            members = self._program.members(action)
            start = partial(self._engine.collective, action, self._transport, members)
        else:
            start = partial(self._engine.copy, action)

        def call() -> None:
            progress.action = action
            for take in takes:
                take()
            handles[position] = clock.issued(position, start)

        return call

    def _take(self, position: int, action: Action) -> Callable[[], None]:
        progress, engine, clock, handles = self._progress, self._engine, self.clock, self._handles
        is_message = RULES[action.kind].stream is Stream.MESSAGE

        def take() -> None:
            handle = handles[position]
            assert handle is not None
            progress.awaited = action
            tensors = handle.wait()
            progress.awaited = None
            handles[position] = None
            if is_message:
                engine.accept(action, clock.received(position, tensors))
            else:
                clock.ended(position)

        return take


def _not_run(worker: int, unknown: list[str]) -> tuple[str, list[str]]:
    text = f"worker {worker}: {', '.join(unknown)}; run a schedule without actions of these kinds"
    return "the executor does not run all actions of this schedule", [text]
