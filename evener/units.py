"""Quantities as people write them, and as Evener counts them: whole numbers of a base unit.

=================== ================================ ==========================
written             counted in                       function
=================== ================================ ==========================
``"80 GiB"``        bytes                            `parse_bytes`
``"400 Gbit/s"``    bytes per second                 `parse_bytes_per_s`
``"5 us"``          nanoseconds                      `parse_ns`
``"989 TFLOP/s"``   floating-point operations/second `parse_flops_per_s`
``"2.49 USD/h"``    millionths of a dollar per hour  `parse_micro_usd_per_h`
=================== ================================ ==========================

Arithmetic is exact. A quantity that is not a whole number of its base unit is rounded to the
nearest one where that changes it by less than a millionth ("22.3 GiB") and refused where it
would change more ("0.4 ns"). Formatting without ``digits`` is exact: it parses back to the same
number. A number without a unit, or with a unit of another kind, is never guessed at.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction

_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?[\d_.]+(?:[eE][+-]?\d{1,3})?)\s*([^\d\s.+-]\S*)?\s*")
_NUMBER = re.compile(r"[+-]?\d+(_\d+)*(\.\d+)?([eE][+-]?\d{1,3})?")
_LARGEST = 2**63 - 1
_MOST_DIGITS = 100
_ROUNDING = Fraction(1, 1_000_000)


class UnitError(ValueError):
    """A text is not the quantity that was expected."""


def too_many_digits(text: str, most: int = 18) -> str | None:
    """What is wrong with a text that has a longer number than any index or count, else None.

    To be asked before ``int``, which refuses thousands of digits with words of its own.
    """
    longest = max(re.findall(r"\d+", text), key=len, default="")
    if len(longest) <= most:
        return None
    return f"{longest[:9]}... is a number of {len(longest)} digits: write at most {most}"


@dataclass(frozen=True)
class Quantity:
    """A kind of quantity: its name, its units and how to read and write it.

    units: how many base units each unit holds. display: the units used for rounded output,
    ascending. examples: two texts shown in error messages.
    """

    name: str
    base: str
    units: Mapping[str, int]
    display: tuple[str, ...]
    examples: tuple[str, str]

    def parse(self, text: object) -> int:
        """The number of base units in ``text``, such as ``"80 GiB"``.

        Raises UnitError when it is not a non-negative number with a unit of this kind, is not a
        whole number of base units (see the module's text) or does not fit 63 bits.
        """
        match = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) else None
        if match is None or not _NUMBER.fullmatch(match[1]):
            raise UnitError(_not_a_quantity(self, text))
        if long := too_many_digits(match[1].replace("_", ""), _MOST_DIGITS):
            raise UnitError(f"{long}; {_expected(self)}")
        number, unit = Fraction(match[1]), match[2]
        if unit is None or unit not in self.units:
            raise UnitError(_wrong_unit(self, str(text), unit))
        if number < 0:
            raise UnitError(f'"{text}" is negative; {_expected(self)}')
        exact = number * self.units[unit]
        whole = round(exact)
        if abs(whole - exact) > exact * _ROUNDING:
            raise UnitError(f'"{text}" is not a whole number of {self.base}; {_expected(self)}')
        if whole > _LARGEST:
            raise UnitError(f'"{text}" is more than 2^63 - 1 {self.base}; {_expected(self)}')
        return whole

    def format(self, value: int | float, digits: int | None = None) -> str:
        """``value`` base units as text.

        Without ``digits`` the value must be whole and the text is the shortest exact one, in the
        larger unit where two are equally short. With ``digits`` it is rounded to that many
        significant digits, in the largest display unit that leaves at least 1 before the point.
        """
        if digits is None:
            assert value == int(value), "only a rounded text can be made of a fraction"
            texts = [
                f"{number} {unit}"
                for unit, size in sorted(self.units.items(), key=lambda item: -item[1])
                if (number := _exact_decimal(int(value), size)) is not None
            ]
            return min(texts, key=len)
        fitting = [unit for unit in self.display if abs(value) >= self.units[unit]]
        unit = fitting[-1] if fitting else self.display[0]
        return f"{_rounded(value / self.units[unit], digits)} {unit}"


def _exact_decimal(value: int, size: int) -> str | None:
    """``value / size`` in decimal digits, or None where they do not end or exceed 12 places."""
    for places in range(13):
        scaled, rest = divmod(value * 10**places, size)
        if rest == 0:
            digits = f"{scaled:0{places + 1}d}"
            return f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return None


def _rounded(number: float, digits: int) -> str:
    return f"{Decimal(f'{number:.{digits}g}'):f}"


def _expected(quantity: Quantity) -> str:
    first, second = quantity.examples
    units = ", ".join(quantity.units)
    return f'write {quantity.name} such as "{first}" or "{second}" (units: {units})'


def _not_a_quantity(quantity: Quantity, text: object) -> str:
    if isinstance(text, int | float) and not isinstance(text, bool):
        return f"{text} has no unit; {_expected(quantity)}"
    shown = f'"{text}"' if isinstance(text, str) else repr(text)
    return f"{shown} is not a number with a unit; {_expected(quantity)}"


def _wrong_unit(quantity: Quantity, text: str, unit: str | None) -> str:
    if unit is None:
        return f'"{text}" has no unit; {_expected(quantity)}'
    other = next((known for known in QUANTITIES if unit in known.units), None)
    if other is not None:
        return f'"{text}" is {other.name}, not {quantity.name}; {_expected(quantity)}'
    near = _nearest_units(quantity, unit)
    hint = f"; did you mean {near}?" if near else ";"
    return f'"{text}" has the unknown unit "{unit}"{hint} {_expected(quantity)}'


def _nearest_units(quantity: Quantity, unit: str) -> str:
    folded = unit.lower().replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    folded = re.sub("ps$", "/s", folded)
    # "Gb/s" and "Gbps" are written for bits and for bytes alike, so both are offered.
    bits = re.fullmatch("([kmgt])b/s", folded)
    near = [known for known in quantity.units if known.lower() == folded]
    if bits:
        near += [known for known in quantity.units if known.lower() == f"{bits[1]}bit/s"]
    if not near:
        by_folded = {known.lower(): known for known in quantity.units}
        near = [by_folded[key] for key in get_close_matches(folded, by_folded, n=1)]
    return " or ".join(f'"{known}"' for known in near)


BYTES = Quantity(
    name="an amount of memory",
    base="bytes",
    units={"B": 1}
    | {unit: 1000**power for power, unit in enumerate(("kB", "MB", "GB", "TB"), 1)}
    | {unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
    display=("B", "KiB", "MiB", "GiB", "TiB"),
    examples=("80 GiB", "24 GB"),
)
BYTES_PER_S = Quantity(
    name="a bandwidth",
    base="bytes per second",
    units={"B/s": 1}
    | {unit: 1000**power for power, unit in enumerate(("kB/s", "MB/s", "GB/s", "TB/s"), 1)}
    | {unit: 1024**power for power, unit in enumerate(("KiB/s", "MiB/s", "GiB/s"), 1)}
    | {unit: 1000**p // 8 for p, unit in enumerate(("kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"), 1)},
    display=("B/s", "kB/s", "MB/s", "GB/s", "TB/s"),
    examples=("400 Gbit/s", "600 GB/s"),
)
NS = Quantity(
    name="a time",
    base="nanoseconds",
    units={"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9},
    display=("ns", "us", "ms", "s"),
    examples=("5 us", "1.5 ms"),
)
FLOPS_PER_S = Quantity(
    name="a compute rate",
    base="floating-point operations per second",
    units={"FLOP/s": 1, "MFLOP/s": 10**6, "GFLOP/s": 10**9, "TFLOP/s": 10**12, "PFLOP/s": 10**15},
    display=("FLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"),
    examples=("989 TFLOP/s", "1.979 PFLOP/s"),
)
MICRO_USD_PER_H = Quantity(
    name="a price",
    base="millionths of a dollar per hour",
    units={"USD/h": 10**6},
    display=("USD/h",),
    examples=("2.49 USD/h", "0 USD/h"),
)
QUANTITIES = (BYTES, BYTES_PER_S, NS, FLOPS_PER_S, MICRO_USD_PER_H)

parse_bytes, format_bytes = BYTES.parse, BYTES.format
parse_bytes_per_s, format_bytes_per_s = BYTES_PER_S.parse, BYTES_PER_S.format
parse_ns, format_ns = NS.parse, NS.format
parse_flops_per_s, format_flops_per_s = FLOPS_PER_S.parse, FLOPS_PER_S.format
parse_micro_usd_per_h, format_micro_usd_per_h = MICRO_USD_PER_H.parse, MICRO_USD_PER_H.format
