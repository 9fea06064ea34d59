"""What a step of a training that freezes is for: the phases of TimelyFreeze (2602.05754)."""

from dataclasses import dataclass
from enum import Enum

from evener.ir.freezing import Freezing
from evener.spec.job import FreezeSpec


class Phase(Enum):
    """The phases, in order; the values are sentences for people."""

    WARM_UP = "Nothing is frozen."
    MONITOR_FULL = "Nothing is frozen, and actions are timed."
    MONITOR_FROZEN = "Everything is frozen, and actions are timed."
    FREEZE = "The shares grow, and then stay."


@dataclass(frozen=True)
class Phases:
    """Which steps are in which phase."""

    spec: FreezeSpec

    @property
    def num_before_freezing(self) -> int:
        """Steps of the first three phases."""
        return self.spec.warmup_steps + 2 * self.spec.monitor_steps

    def of(self, step: int) -> Phase:
        if step >= self.num_before_freezing:
            return Phase.FREEZE
        if step < self.spec.warmup_steps:
            return Phase.WARM_UP
        is_full = step < self.spec.warmup_steps + self.spec.monitor_steps
        return Phase.MONITOR_FULL if is_full else Phase.MONITOR_FROZEN

    def ramped(self, freezing: Freezing, step: int) -> Freezing:
        """How much of a freezing is in force at a step of the last phase: a linear ramp."""
        num_ramped = step - self.num_before_freezing + 1
        if num_ramped >= self.spec.ramp_steps:
            return freezing
        return freezing.scaled(num_ramped, self.spec.ramp_steps)
