"""The phases of a training that freezes, on one worker."""

from evener.executor.freezing_engine import FreezingEngine
from evener.executor.transport import Transport
from evener.ir.freezing import WHOLE_PPM, Freezing
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.planner.freezing.linear_program import best_shares
from evener.planner.freezing.measured import measured_least_ns, measured_single_costs
from evener.planner.freezing.phases import Phase, Phases


class Freezer:
    """Says what each step freezes; all workers of a plan call the same methods.

    plan: of a job that freezes. engine: is told.

    The shares are those of the plan, until monitoring has shown what actions really take.
    """

    def __init__(self, plan: Plan, engine: FreezingEngine, transport: Transport) -> None:
        assert plan.job.freeze is not None, "the job does not freeze"
        assert plan.freezing is not None, "a plan has a freezing if its job freezes"
        self.engine = engine
        self._freezing = plan.freezing
        self._phases = Phases(plan.job.freeze)
        self._transport = transport
        self._everything = Freezing.uniform(plan.lowered(), WHOLE_PPM)
        self._timelines: dict[Phase, list[Timeline]] = {
            Phase.MONITOR_FULL: [],
            Phase.MONITOR_FROZEN: [],
        }

    def is_measuring(self, step: int) -> bool:
        """Whether the timeline of a step is wanted."""
        return self._phases.of(step) in self._timelines

    def note(self, step: int, timeline: Timeline) -> None:
        """Take the timeline of a step that is measuring."""
        self._timelines[self._phases.of(step)].append(timeline)

    def begin_step(self, step: int) -> Freezing | None:
        """What the step freezes, if anything; a collective over all workers."""
        phase = self._phases.of(step)
        freezing = None
        if phase is Phase.MONITOR_FROZEN:
            freezing = self._everything
        elif phase is Phase.FREEZE:
            if all(self._timelines.values()):
                self._freezing = self._solve()
            freezing = self._phases.ramped(self._freezing, step)
        self.engine.freeze(freezing, step=step)
        return freezing

    def _solve(self) -> Freezing:
        """The best shares for what was measured, found by worker 0 for all."""
        found = None
        if self._transport.worker == 0:
            full = self._timelines[Phase.MONITOR_FULL]
            found = best_shares(
                full[0].schedule,
                measured_single_costs(full),
                least=measured_least_ns(self._timelines[Phase.MONITOR_FROZEN]),
                max_share_ppm=self._phases.spec.max_share_ppm,
            ).freezing
        self._timelines = {phase: [] for phase in self._timelines}
        solved: Freezing = self._transport.gather(found)[0]
        return solved
