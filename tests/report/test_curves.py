import math
import xml.etree.ElementTree as ElementTree

import pytest

from evener.report.curves import loss_svg


def curves(losses: list[float]) -> list[list[tuple[float, float]]]:
    root = ElementTree.fromstring(loss_svg(losses))
    return [
        [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]  # type: ignore[misc]
        for line in root.iter("polyline")
    ]


def test_a_falling_loss_falls_on_the_page() -> None:
    (curve,) = curves([3.0, 2.0, 1.0])
    # y grows downwards; equal steps are equally far apart.
    (x0, y0), (x1, y1), (x2, y2) = curve
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 < y1 < y2
    assert y1 - y0 == pytest.approx(y2 - y1)


def test_the_axis_has_round_numbers_around_the_curve() -> None:
    root = ElementTree.fromstring(loss_svg([5.44, 1.98]))
    texts = [text.text for text in root.iter("text")]
    assert texts[:6] == ["1", "2", "3", "4", "5", "6"]
    assert texts[6:] == ["step 1", "2"]


def test_a_loss_that_is_not_finite_leaves_a_gap() -> None:
    assert [len(curve) for curve in curves([3.0, 2.0, math.nan, 1.0, math.inf])] == [2, 1]


def test_a_long_run_is_thinned_without_losing_its_peaks() -> None:
    losses = [2.0] * 100_000
    losses[54_321] = 9.0
    (curve,) = curves(losses)
    assert len(curve) <= 700
    highest = min(y for _, y in curve)
    assert [y for _, y in curve].count(highest) == 1


@pytest.mark.parametrize("losses", [[2.0], [2.0, 2.0], [math.nan]])
def test_degenerate_curves_are_pictures_too(losses: list[float]) -> None:
    assert ElementTree.fromstring(loss_svg(losses)).tag == "svg"
