"""A whole training run of one plan: what every rank does from start to end."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

from evener.errors import UsageError
from evener.executor.batch import Batch
from evener.executor.devices import device_of
from evener.executor.failure import Progress
from evener.executor.launch import Rank, run_workers
from evener.executor.replanning import Replanning
from evener.executor.seat import Seat
from evener.executor.side_tasks import SideTaskReport
from evener.executor.train import StepResult, Trainer, TrainOptions
from evener.executor.watch import Watch
from evener.ir.freezing import Freezing
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.planner.replan.options import Replan
from evener.planner.replan.replanner import Switch

MakeBatch: TypeAlias = Callable[[int], Batch]
"""The data of a step, by its index: the same on every rank."""

_NUM_TIMELINES = 31


@dataclass(frozen=True)
class Training:
    """What a run gives; equal on all ranks.

    losses: of each step, per token. grad_norms: before clipping, None where the job does not clip.
    step_ns: of each step, from the first start to the last end of an action of any worker; of the
    updates of one asynchronous run, their mean.
    timeline: the one of median length among the last steps (that froze what the last one froze,
    under the last plan).
    freezing: what the last step froze, None if nothing.
    side_tasks: what became of each, of all workers.
    switches: to other plans; the last one's is in force at the end.
    """

    losses: tuple[float, ...]
    grad_norms: tuple[float | None, ...]
    step_ns: tuple[int, ...]
    timeline: Timeline
    side_tasks: tuple[SideTaskReport, ...] = ()
    freezing: Freezing | None = None
    switches: tuple[Switch, ...] = ()


@dataclass(frozen=True)
class Session:
    """A training run that has yet to be given its ranks.

    model: what ``Trainer`` takes. steps: optimizer updates, 1 or more. An asynchronous schedule
    makes several in one run, and in the last run as many as are left.
    options: by default those of ``TrainOptions``, on the rank's own device.
    on_start: called on every rank with its trainer before the first step, and with every new one
    after a switch of plans.
    on_step: called on rank 0 after each step with its index and result.
    at_end: called, by another thread, before a rank is ended because another one failed.
    replan: whether and how the plan is changed while it runs.

    Raises UsageError if there is nothing to do, side work is given that is not the plan's, or
    ``replan`` is for a run whose plan cannot change; ProfileError if its profile lacks layers.
    """

    plan: Plan
    model: Any
    make_batch: MakeBatch
    steps: int
    options: TrainOptions | None = None
    on_step: Callable[[int, StepResult], None] | None = None
    on_start: Callable[[Trainer], None] | None = None
    at_end: Callable[[], None] | None = None
    replan: Replan | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UsageError(f"steps is {self.steps}; ask for 1 or more")
        options = self.options or TrainOptions()
        options.require_side_work(self.plan)
        if self.replan is not None:
            self.replan.world(self.plan, self.model)
            if options.side_tasks:
                raise UsageError(_SIDE_TASKS)

    def train(self, rank: Rank) -> Training:
        """Train as one rank of as many as the plan has workers."""
        require_workers(self.plan, rank.num_ranks)
        options = self.options or TrainOptions(device=device_of(rank))
        progress = Progress(rank.index)
        with Watch(rank, progress, at_end=self.at_end):
            seat = Seat(rank, self.plan, self.model, options, progress)
            if self.on_start is not None:
                self.on_start(seat.trainer)
            with (
                seat.trainer.side_tasks as side_tasks,
                Replanning(self.replan, seat, is_first=rank.index == 0) as replanning,
            ):
                training = self._steps(seat, replanning, is_first=rank.index == 0)
            if options.side_tasks:
                reports = seat.transport.gather(side_tasks.reports)
                training = replace(training, side_tasks=tuple(chain(*reports)))
            seat.close()
        return training

    def _steps(self, seat: Seat, replanning: Replanning, *, is_first: bool) -> Training:
        results: list[StepResult] = []
        recent = deque[Timeline](maxlen=_NUM_TIMELINES)
        step_ns = []
        size = seat.trainer.schedule.updates.number
        for first in range(0, self.steps, size):
            if first > 0 and replanning.switches_before(first):
                recent.clear()  # steps of another plan are not comparable
                if self.on_start is not None:
                    self.on_start(seat.trainer)
            steps = range(first, min(first + size, self.steps))
            run = seat.trainer.steps(list(map(self.make_batch, steps)), timeline=True)
            timeline = run[0].timeline
            assert timeline is not None, "it was asked for"
            if results and run[0].freezing != results[-1].freezing:
                recent.clear()  # steps that freeze something else are not comparable
            recent.append(timeline)
            replanning.note(timeline)
            for step, result in zip(steps, run, strict=True):
                step_ns.append(timeline.update_ns)
                results.append(result)
                if is_first and self.on_step is not None:
                    self.on_step(step, result)
        # The first step of a process also loads code and makes connections.
        num_runs = -(-self.steps // size)
        steady = list(recent)[1:] if num_runs > 1 and len(recent) == num_runs else list(recent)
        steady.sort(key=lambda timeline: timeline.update_ns)
        return Training(
            losses=tuple(result.loss for result in results),
            grad_norms=tuple(result.grad_norm for result in results),
            step_ns=tuple(step_ns),
            timeline=steady[len(steady) // 2],
            freezing=results[-1].freezing,
            switches=tuple(replanning.switches),
        )


def train_local(session: Session, *, timeout_s: float = 86_400.0) -> Training:
    """Train with one forked process per worker on this machine.

    Raises ExecutionError if any rank fails.
    """
    return run_workers(session.train, session.plan.num_workers, timeout_s=timeout_s)[0]


def require_workers(plan: Plan, num_ranks: int) -> None:
    """Raise UsageError unless there is one rank for each worker."""
    if num_ranks != plan.num_workers:
        raise UsageError(
            f"the plan has {plan.num_workers} workers, but there are {num_ranks} ranks"
        )


_SIDE_TASKS = (
    "side tasks know the bubbles of one plan, and re-planning changes plans; leave one of them out"
)
