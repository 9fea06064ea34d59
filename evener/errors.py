"""Every error that a user can meet.

::

    ValueError
    └── EvenerError            a header and all violations found, one line each
        ├── SpecError          a model, cluster or job file: unreadable, unknown key, bad value
        ├── ScheduleError      a schedule that breaks a rule or cannot finish
        ├── PlanError          a plan file: corrupted, of another model or of another version
        ├── PlanInfeasible     no plan exists under the given limits, or none fits
        ├── ProfileError       a profile: corrupted, incomplete, not of this model
        ├── ExecutionError     a rank failed; knows rank, stage, microbatch and action
        ├── ExportError        the target format cannot say what the plan says
        └── UsageError         a call or a command line that asks for the impossible

The command line ends with exit code 2 for each of them and prints ``str(error)`` without a
traceback. The texts are written by named functions next to the code that raises them. What is
wrong is collected before raising, so that one run shows all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class EvenerError(ValueError):
    """A header and one line per violation.

    header: one sentence that says what was refused.
    violations: all that is wrong, each a text that names the place, both sides and a way out.
    """

    header: str
    violations: tuple[str, ...]

    def __init__(self, header: str, violations: Sequence[str] = ()) -> None:
        self.header = header
        self.violations = tuple(violations)
        super().__init__("\n".join((header, *(f"  {text}" for text in self.violations))))


@dataclass(frozen=True)
class Violation:
    """One thing wrong in a file. Prints as ``file:line: key: text``, unknown parts left out."""

    text: str
    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}" if place else f"line {self.line}"
        return ": ".join(part for part in (place, self.key, self.text) if part)


class SpecError(EvenerError):
    """A description of a model, a cluster or a job is wrong.

    places: the violations as values with file, line and key; ``violations`` has them as text.
    """

    places: tuple[Violation, ...]

    def __init__(self, header: str, places: Sequence[Violation] = ()) -> None:
        self.places = tuple(places)
        super().__init__(header, tuple(str(place) for place in self.places))


class ScheduleError(EvenerError):
    """A schedule breaks a rule: not covered, out of order, deadlocked, over a memory cap."""


class PlanError(EvenerError):
    """A plan cannot be read or used: corrupted, of another model, of another format version."""


class PlanInfeasible(EvenerError):
    """No plan satisfies the limits; says what is short and what would help."""


class ProfileError(EvenerError):
    """A profile cannot be read or does not have what the model or the plan needs."""


class ExecutionError(EvenerError):
    """A rank failed while it ran a plan. Each place is None where it is not known.

    rank, stage, microbatch: global indices. action: in text form, such as ``2F5``.
    """

    def __init__(
        self,
        header: str,
        violations: Sequence[str] = (),
        *,
        rank: int | None = None,
        stage: int | None = None,
        microbatch: int | None = None,
        action: str | None = None,
    ) -> None:
        self.rank = rank
        self.stage = stage
        self.microbatch = microbatch
        self.action = action
        super().__init__(header, violations)


class ExportError(EvenerError):
    """The target of an export cannot express the plan; one violation per reason."""


class UsageError(EvenerError):
    """The arguments of a call or of a command contradict one another or are out of range."""
