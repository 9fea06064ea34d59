"""Numbers as a report prints them: one unit for all times and sizes that are compared."""

from collections.abc import Iterable
from dataclasses import dataclass

from evener.units import BYTES, NS, Quantity


@dataclass(frozen=True)
class Scale:
    """One unit and one number of decimals for a column of values.

    unit: name of the unit. size: base units (ns or bytes) in it. decimals: digits after the point.
    """

    unit: str
    size: int
    decimals: int

    def format(self, value: float) -> str:
        """``value`` base units in this unit, without the unit's name."""
        return f"{value / self.size:,.{self.decimals}f}"

    def with_unit(self, value: float) -> str:
        """``value`` base units in this unit, followed by its name."""
        return f"{self.format(value)} {self.unit}"


def time_scale(values_ns: Iterable[float]) -> Scale:
    """The unit in which the largest of these times has one to four digits before the point."""
    return _scale(NS, values_ns)


def memory_scale(values_bytes: Iterable[float]) -> Scale:
    """The unit in which the largest of these sizes has one to four digits before the point."""
    return _scale(BYTES, values_bytes)


def _scale(quantity: Quantity, values: Iterable[float]) -> Scale:
    largest = max((abs(value) for value in values), default=0)
    unit = quantity.display[0]
    for candidate in quantity.display:
        if largest >= quantity.units[candidate]:
            unit = candidate
    size = quantity.units[unit]
    if size == 1:
        return Scale(unit, size, 0)
    whole_digits = len(str(int(largest / size)))
    return Scale(unit, size, max(0, 4 - whole_digits))


def format_share(value: float) -> str:
    """A fraction in percent."""
    return f"{value:.1%}".replace("%", " %")


def format_change(value: float) -> str:
    """A relative difference in percent with its sign; exactly equal is said in words."""
    if value == 0:
        return "equal"
    return f"{value:+.2%}".replace("%", " %")
