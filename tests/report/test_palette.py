"""Colours can be told apart and read, whatever the paper and the eyes."""

import itertools

import pytest

from evener.ir.action import Kind
from evener.report.palette import DARK_PAPER, LIGHT_PAPER, NUM_SHADES, PALETTE, shades, text_on


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG 2.2 contrast ratio."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_kind_has_an_ink() -> None:
    assert PALETTE.keys() == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_labels_can_be_read_on_every_shade(kind: Kind) -> None:
    for base, paper in ((PALETTE[kind].light, LIGHT_PAPER), (PALETTE[kind].dark, DARK_PAPER)):
        found = shades(base, paper)
        assert len(set(found)) == NUM_SHADES
        assert found[0] == base
        assert all(contrast(colour, text_on(colour)) >= 4.5 for colour in found)  # WCAG AA


def test_shades_come_closer_to_the_paper() -> None:
    # 30 % of the way from 0 to 255 is 76.5, 50 % is 127.5, 65 % is 165.75.
    assert shades("#000000", "#ffffff") == ["#000000", "#4c4c4c", "#808080", "#a6a6a6"]


# Matrices of complete red-, green- and blue-blindness on linear RGB: Machado, Oliveira and
# Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
# IEEE TVCG 15(6), 2009, severity 1.0.
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def lab(colour: str, blindness: str) -> tuple[float, float, float]:
    """CIE L*a*b* (D65) of what such an eye sees."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    seen = [sum(w * p for w, p in zip(r, linear, strict=True)) for r in BLINDNESS[blindness]]
    red, green, blue = (min(1.0, max(0.0, part)) for part in seen)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("paper", ["light", "dark"])
def test_kinds_that_stand_side_by_side_can_be_told_apart(blindness: str, paper: str) -> None:
    kinds = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)
    inks = [getattr(PALETTE[kind], paper) for kind in kinds]
    distances = [
        sum((a - b) ** 2 for a, b in zip(lab(one, blindness), lab(other, blindness), strict=True))
        ** 0.5
        for one, other in itertools.combinations(inks, 2)
    ]
    # 2.3 is a just noticeable difference; five times as much is seen at a glance.
    assert min(distances) >= 11.5
