"""What a user says about planning anew while training."""

from collections.abc import Callable
from dataclasses import dataclass

from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.ir.plan import Plan
from evener.ir.schedule import side_work_names
from evener.planner.find_plan import require_planner
from evener.planner.replan.world import World
from evener.spec.cluster import ClusterSpec
from evener.spec.model import ModelSpec


def say_nothing(text: str) -> None:
    """For runs without people."""
    del text


@dataclass(frozen=True)
class Replan:
    """Plan anew when a run turns out to be another one than it was planned for.

    cluster, profile: what the plan was made from. model: the plan's, if the run is not given one.
    planner, time_limit_s: who searches, and for how long at most.
    threshold: what counts as a change: a worker that takes so many times as long as expected, or
        as much less; a link on which messages take longer by as much as that factor adds to a mean
        action. window: number of steps of which medians are compared; a change must last two
        windows, and one more after every switch.
    least_gain: a plan must be faster than the present one by this share to be worth a switch.
    at_start: search once as soon as two windows have been measured, changed or not; for a profile
        that is computed, or older than the machines.
    tell: called on rank 0 with sentences for people.

    Raises UsageError for a planner that does not exist and numbers that make no sense.
    """

    cluster: ClusterSpec
    profile: Profile
    model: ModelSpec | None = None
    planner: str = "sweep"
    time_limit_s: float = 60.0
    threshold: float = 1.2
    window: int = 4
    least_gain: float = 0.05
    at_start: bool = False
    tell: Callable[[str], None] = say_nothing

    def __post_init__(self) -> None:
        require_planner(self.planner)
        wrong = []
        if self.time_limit_s <= 0:
            wrong.append(f"time_limit_s is {self.time_limit_s:g}; give more than 0")
        if self.threshold <= 1:
            wrong.append(f"threshold is {self.threshold:g}; give more than 1, such as 1.2")
        if self.window < 1:
            wrong.append(f"window is {self.window}; give 1 or more steps")
        if self.least_gain < 0:
            wrong.append(f"least_gain is {self.least_gain:g}; give 0 or more, such as 0.05")
        if wrong:
            raise UsageError("this cannot be asked of re-planning", wrong)

    def world(self, plan: Plan, model: object) -> World:
        """What is believed before the first step.

        Raises UsageError if the plan cannot be changed while it runs or there is no description of
        the model, and what ``World.of`` raises.
        """
        described = self.model or model
        wrong = list(_cannot_change(plan))
        if not isinstance(described, ModelSpec):
            wrong.append(_NOT_DESCRIBED)
        if wrong:
            raise UsageError("this run cannot be planned anew", wrong)
        assert isinstance(described, ModelSpec)
        return World.of(plan, described, self.cluster, self.profile)


def _cannot_change(plan: Plan) -> list[str]:
    return [
        f"its plan {what}, of which a part would be lost at a switch; plan without, or train"
        " without re-planning"
        for what, there in (
            ("freezes parameters", plan.freezing is not None),
            ("makes several updates between two flushes", plan.schedule.updates.number > 1),
            ("spreads its head", plan.job.spread_head),
            ("has side work", bool(side_work_names(plan.steps))),
        )
        if there
    ]


_NOT_DESCRIBED = "its model is a module; give its description as well, Replan(model=ModelSpec...)"
