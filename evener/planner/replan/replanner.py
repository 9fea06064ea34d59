"""Watches a run, and finds it a better plan when it is no longer what it was planned for."""

from dataclasses import dataclass, replace

from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.planner.replan.drift import Drift, Expected
from evener.planner.replan.observation import Observation
from evener.planner.replan.options import Replan
from evener.planner.replan.search import Search
from evener.planner.replan.warm_up import with_other_warm_up
from evener.planner.replan.world import World
from evener.units import format_ns

_NUM_WARM_UPS = 2  # the first steps of a plan also load code and make room
_NUM_WINDOWS = 2  # that a change has to last


@dataclass(frozen=True)
class Switch:
    """A change of plans, told to all ranks.

    step: the first one under the new plan. reason: what had changed.
    before_ns, after_ns: predicted step times of the old and the new plan as things are now.
    """

    step: int
    plan: Plan
    reason: str
    before_ns: int
    after_ns: int

    @property
    def gain(self) -> float:
        """How much faster, as a factor."""
        return self.before_ns / max(1, self.after_ns)


class Replanner:
    """What rank 0 does; no call waits for a search.

    Call ``note`` after every step and ``proposal`` between two steps; what it returns is taken for
    the plan from then on.
    """

    def __init__(self, options: Replan, plan: Plan, world: World) -> None:
        self._options = options
        self._expected = Expected(plan, world)
        self._num_steps = 0  # under this plan
        self._window: list[Observation] = []
        self._trusts_layers = False
        self._num_drifted = 0  # windows in a row
        self._num_switches = 0
        self._is_due = options.at_start
        self._reason = ""
        self._search: Search | None = None
        self._light: Plan | None = None
        self._seen_ns = 0  # median step of the last window
        self._measured: tuple[int, float] | None = None  # before a switch: step time, promised gain

    def note(self, timeline: Timeline) -> None:
        """Take in a step that was run under the plan."""
        self._num_steps += 1
        if self._num_steps <= _NUM_WARM_UPS:
            return
        self._window.append(self._expected.observer.read(timeline))
        if len(self._window) == self._options.window:
            seen = Observation.together(self._window)
            self._window.clear()
            self._end_window(seen)

    def _end_window(self, seen: Observation) -> None:
        self._seen_ns = seen.step_ns
        if self._measured is not None:
            self._tell_gain(*self._measured)
            self._measured = None
        if self._search is not None or self._light is not None:
            return
        drift = self._expected.compare(
            seen, threshold=self._options.threshold, trusts_layers=self._trusts_layers
        )
        self._num_drifted = self._num_drifted + 1 if drift.reasons or self._is_due else 0
        if self._num_drifted >= _NUM_WINDOWS + self._num_switches:
            self._plan_anew(drift)
        elif not drift.reasons and not self._trusts_layers:
            self._believe(drift.world)

    def _believe(self, world: World) -> None:
        self._expected = Expected(self._expected.plan, world)
        self._trusts_layers = True

    def _plan_anew(self, drift: Drift) -> None:
        self._num_drifted, self._is_due = 0, False
        self._believe(drift.world)
        self._reason = "; ".join(drift.reasons) or "the profile is now a measured one"
        options = self._options
        if drift.only_links:
            self._light = with_other_warm_up(self._expected.plan, drift.world)
        self._search = Search(
            drift.world.problem, options.planner, time_limit_s=options.time_limit_s
        )
        options.tell(
            f"re-plan: {self._reason}; {options.planner} searches for"
            f" {options.time_limit_s:g} s at most"
        )

    def proposal(self, step: int) -> Switch | None:
        """The plan to switch to before this step, if there is a better one by now."""
        light, self._light = self._light, None
        if light is not None and (switch := self._switch(step, light)) is not None:
            return switch
        if self._search is None or self._search.answer is None:
            return None
        answer, self._search = self._search.answer, None
        if isinstance(answer, str):
            self._options.tell(f"re-plan: the search failed, training goes on as it is: {answer}")
            return None
        plan = self._expected.world.by_name(answer.best)
        switch = self._switch(step, plan)
        if switch is None:
            self._options.tell(self._no_better(plan))
        return switch

    def _switch(self, step: int, plan: Plan) -> Switch | None:
        """None if the plan is not worth it."""
        world, present = self._expected.world, self._expected.plan
        if plan.num_workers != world.num_ranks or plan.schedule.updates.number > 1:
            return None
        before_ns, after_ns = world.step_ns(present), world.step_ns(plan)
        switch = Switch(step, plan, self._reason, before_ns, after_ns)
        if switch.gain < 1 + self._options.least_gain:
            return None
        self._options.tell(
            f"re-plan: {plan.schedule.name} from step {step} on, {switch.gain:.2f}x as fast as"
            f" {present.schedule.name} ({format_ns(after_ns, digits=4)} instead of"
            f" {format_ns(before_ns, digits=4)} predicted)"
        )
        self._measured = self._seen_ns, switch.gain
        self._expected = replace(self._expected, plan=plan)
        self._num_switches += 1
        self._num_steps, self._num_drifted = 0, 0
        self._window.clear()
        return switch

    def _no_better(self, plan: Plan) -> str:
        world, present = self._expected.world, self._expected.plan
        if plan.num_workers != world.num_ranks:
            why = f"the best one has work for {plan.num_workers} of {world.num_ranks} workers"
        elif plan.schedule.updates.number > 1:
            why = f"the best one makes {plan.schedule.updates.number} updates between two flushes"
        else:
            gain = world.step_ns(present) / max(1, world.step_ns(plan)) - 1
            least = self._options.least_gain
            why = f"the best one gains {gain:.1%}, and a switch asks for {least:.1%}"
        return f"re-plan: no better plan, training goes on as it is: {why}"

    def _tell_gain(self, before_ns: int, promised: float) -> None:
        self._options.tell(
            f"re-plan: measured {before_ns / max(1, self._seen_ns):.2f}x as fast"
            f" ({format_ns(self._seen_ns, digits=4)} instead of {format_ns(before_ns, digits=4)});"
            f" predicted was {promised:.2f}x"
        )

    def close(self) -> None:
        """End a search that still runs, and say so."""
        if self._search is not None:
            self._search.close()
            self._options.tell("re-plan: training ends before a search that still ran")
