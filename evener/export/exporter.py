"""What an exporter is: it says what its target cannot express, and refuses to write it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evener.errors import ExportError
from evener.ir.plan import Plan
from evener.spec.model import ModelSpec


@dataclass(frozen=True)
class Reason:
    """One thing in a plan that the target cannot express, with the way out."""

    text: str

    def __str__(self) -> str:
        return self.text


class Exporter(Protocol):
    """Writes plans in the format of another system.

    target: what the format is called in messages.
    model: the plan's model, for targets that know kinds of layers and not only their order.
    """

    @property
    def target(self) -> str: ...

    def unsupported(self, plan: Plan, model: ModelSpec | None = None) -> list[Reason]:
        """All that would be lost or changed; empty if the plan can be written."""
        ...

    def write(self, plan: Plan, path: Path | str, model: ModelSpec | None = None) -> None:
        """Write the plan. Raises ExportError with all reasons if anything would be lost."""
        ...


def require_supported(target: str, plan: Plan, reasons: Sequence[Reason]) -> None:
    """Raise ExportError that names the plan, the target and all reasons, if there are any."""
    if reasons:
        raise ExportError(_cannot_say(target, plan), [str(reason) for reason in reasons])


def _cannot_say(target: str, plan: Plan) -> str:
    return f"{target} cannot express this plan ({plan.schedule.name} of {plan.model}):"
