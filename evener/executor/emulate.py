"""A plan's processes without its cluster: the executor under another clock.

- "virtual": actions cost what the table says, messages carry virtual time. Deterministic, and
  equal to ``sim.simulate`` to the nanosecond.
- "measured": a real model computes; each action costs the CPU time of its thread.
- "wall": compute is sleeping, links are shaped in latency and bandwidth, real time passes.

Messages are real in all three, between one process per worker: through gloo, as on a cluster, but
under "wall", where nothing besides the link should take time, through the fastest transport.
"""

import ctypes
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evener.cost.table import KIND_INDEX, CostTable, SliceCosts
from evener.errors import UsageError
from evener.executor.clock import Clock
from evener.executor.emulated_clock import (
    Durations,
    SleepClock,
    VirtualClock,
    charge_table,
    charge_thread_time,
)
from evener.executor.engine import Engine
from evener.executor.failure import Progress
from evener.executor.launch import Rank, run_workers
from evener.executor.loop import Loop
from evener.executor.shared_memory import connect
from evener.executor.torch_transport import TorchTransport
from evener.executor.trace import StepTimes, join_times, note_times
from evener.executor.transport import Done, Handle, Transport, connections
from evener.executor.watch import Watch
from evener.interp.worker import WorkerProgram
from evener.ir.action import Action, Kind
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline

ClockName: TypeAlias = Literal["virtual", "measured", "wall"]

_SOURCES = {"virtual": "virtual clock", "measured": "measured costs", "wall": "sleeping workers"}
_PR_SET_TIMERSLACK = 29


class EmulatedEngine(Engine, Protocol):
    """A model for ``clock="measured"``: an engine that feeds itself."""

    def begin_step(self) -> None:
        """Take in the next batch."""
        ...

    def end_step(self) -> None:
        """Put away what the step left."""
        ...


MakeEngine: TypeAlias = Callable[[Schedule, Transport], EmulatedEngine]
"""Builds the engine of the worker that the transport belongs to, in that worker's process."""


def emulate(
    schedule: Schedule,
    costs: CostTable,
    *,
    clock: ClockName = "virtual",
    steps: int = 1,
    make_engine: MakeEngine | None = None,
    timeout_s: float = 600.0,
) -> tuple[Timeline, ...]:
    """Run a lowered schedule in one process per worker on this machine; one timeline per step.

    costs: under "virtual" and "wall" of everything, under "measured" of all but compute actions.
    make_engine: the model, for "measured" only.

    Raises UsageError for arguments that do not go together, and ExecutionError if a process fails
    or all take longer than ``timeout_s``.
    """
    problems = _problems(schedule, costs, clock, steps, make_engine)
    if problems:
        raise UsageError("this cannot be emulated", problems)
    if clock == "measured":
        # A real model runs the actions of a braid one after the other.
        schedule = replace(schedule, braids=frozenset())
    emulation = _Emulation(schedule, costs, clock, steps, make_engine)
    parts = run_workers(emulation.run, schedule.num_workers, timeout_s=timeout_s)
    return tuple(
        join_times(schedule, times, source=_SOURCES[clock]) for times in zip(*parts, strict=True)
    )


def measured_costs(timelines: Sequence[Timeline], costs: CostTable) -> CostTable:
    """The table with the compute times replaced by the means of what the timelines show.

    Means are per (worker, stage, kind), and per slice where there are slices, over all microbatches
    and timelines; of actions that have a time of their own, over the timelines; of side work per
    name.  Not medians:
    along a path of actions it is times that add up, long ones included.
    """
    side: dict[str, list[int]] = {}
    single: dict[Action, list[int]] = {}
    durations: dict[tuple[int, ...], list[int]] = {}
    of_slices: dict[tuple[int, ...], list[int]] = {}
    for timeline in timelines:
        for worker in range(timeline.schedule.num_workers):
            for action, start_ns, end_ns in timeline.spans(worker):
                if RULES[action.kind].stream is not Stream.COMPUTE:
                    continue
                if action.kind is Kind.X:
                    side.setdefault(str(action.name), []).append(end_ns - start_ns)
                    continue
                if action in costs.single_ns:
                    single.setdefault(action, []).append(end_ns - start_ns)
                    continue
                cell = worker, action.stage, KIND_INDEX[action.kind]
                durations.setdefault(cell, []).append(end_ns - start_ns)
                if action.slice is not None:
                    of_slices.setdefault((*cell, action.slice), []).append(end_ns - start_ns)
    means_ns = {action: _mean(values) for action, values in single.items()}
    table = replace(
        costs,
        time_ns=_with_means(costs.time_ns, durations),
        single_ns={**costs.single_ns, **means_ns},
        side_ns={**costs.side_ns, **{name: _mean(values) for name, values in side.items()}},
    )
    if not of_slices:
        return table
    num_slices = timelines[0].schedule.num_slices
    slices = table.slices or SliceCosts.equal(table, num_slices)
    time_ns = _with_means(slices.time_ns, of_slices)
    return replace(table, slices=replace(slices, time_ns=time_ns))


def _with_means(
    time_ns: NDArray[np.int64], durations: dict[tuple[int, ...], list[int]]
) -> NDArray[np.int64]:
    time_ns = time_ns.copy()
    for cell, values in durations.items():
        time_ns[cell] = _mean(values)
    return time_ns


def _mean(values: Sequence[int]) -> int:
    return sum(values) // len(values)


def _problems(
    schedule: Schedule,
    costs: CostTable,
    clock: str,
    steps: int,
    make_engine: MakeEngine | None,
) -> list[str]:
    problems = []
    if (costs.num_workers, costs.num_stages) != (schedule.num_workers, schedule.num_stages):
        problems.append(_other_size(schedule, costs))
    if clock not in _SOURCES:
        problems.append(f"clock {clock!r} is not known; choose one of {', '.join(_SOURCES)}")
    if steps < 1:
        problems.append(f"steps is {steps}; ask for 1 or more")
    if not schedule.is_lowered and _has_neighbours_elsewhere(schedule):
        problems.append(f"schedule {schedule.name} has no messages; lower it with ir.passes.lower")
    if clock == "measured" and make_engine is None:
        problems.append("clock 'measured' runs a real model; give make_engine")
    if clock != "measured" and make_engine is not None:
        problems.append(f"clock {clock!r} runs no model; leave make_engine out")
    return problems


def _has_neighbours_elsewhere(schedule: Schedule) -> bool:
    """Whether some stage hands to one of another worker; replicas of one worker each do not."""
    runner = schedule.runner
    return any(
        runner.get((behind, microbatch, token_slice), worker) != worker
        for (stage, microbatch, token_slice), worker in runner.items()
        for behind in schedule.successors[stage]
    )


def _other_size(schedule: Schedule, costs: CostTable) -> str:
    return (
        f"the costs are for {costs.num_workers} workers and {costs.num_stages} stages, schedule "
        f"{schedule.name} has {schedule.num_workers} and {schedule.num_stages}; give its own costs"
    )


@dataclass(frozen=True)
class _Emulation:
    """What every process does."""

    schedule: Schedule
    costs: CostTable
    clock: ClockName
    steps: int
    make_engine: MakeEngine | None

    def run(self, rank: Rank) -> list[StepTimes]:
        progress = Progress(rank.index)
        with Watch(rank, progress):
            _sleep_exactly()
            transport = self._connected(rank)
            program = WorkerProgram(self.schedule, rank.index)
            engine: EmulatedEngine = StandIn()
            if self.make_engine is not None:
                engine = self.make_engine(self.schedule, transport)
            loop = Loop(
                program,
                engine=engine,
                transport=transport,
                clock=self._clock(program, transport),
                progress=progress,
            )
            times = []
            for _ in range(self.steps):
                engine.begin_step()
                transport.barrier()
                loop.run_step()
                times.append(note_times(loop.clock))
                engine.end_step()
            transport.close()
        return times

    def _connected(self, rank: Rank) -> TorchTransport:
        pairs, groups = connections(self.schedule)
        if self.clock == "wall":
            return connect(rank, torch.device("cpu"), pairs, groups)
        return TorchTransport(
            rank.store,
            worker=rank.index,
            num_workers=rank.num_ranks,
            pairs=pairs,
            groups=groups,
        )

    def _clock(self, program: WorkerProgram, transport: Transport) -> Clock:
        durations = Durations(program, self.costs)
        if self.clock == "wall":
            return SleepClock(program, durations=durations, transport=transport)
        charge = charge_thread_time if self.clock == "measured" else charge_table(durations)
        return VirtualClock(program, durations=durations, transport=transport, charge=charge)


class StandIn:
    """An engine without a model: its messages say which they are, and are checked on arrival."""

    def signature(self, microbatch: int) -> Hashable:
        return None

    def run(self, action: Action) -> None:
        """Nothing is computed."""

    def payload(self, action: Action) -> tuple[Tensor, ...]:
        return (_identity(action),)

    def accept(self, action: Action, tensors: tuple[Tensor, ...]) -> None:
        (received,) = tensors
        assert received.equal(_identity(action)), f"{action} received {received.tolist()}"

    def collective(self, action: Action, transport: Transport, members: tuple[int, ...]) -> Handle:
        return Done()

    def copy(self, action: Action) -> Handle:
        return Done()

    def begin_step(self) -> None:
        """No batch is needed."""

    def end_step(self) -> None:
        """Nothing is left."""


def _identity(action: Action) -> Tensor:
    """What both ends of a message agree on: its direction, microbatch and slice."""
    assert action.microbatch is not None
    forward = action.kind in (Kind.SEND_F, Kind.RECV_F)
    return torch.tensor([forward, action.microbatch, -1 if action.slice is None else action.slice])


def _sleep_exactly() -> None:
    """Have the kernel wake this process up without the usual slack of 50 us (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
