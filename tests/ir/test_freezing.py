import pytest

from evener.ir.freezing import Freezing, freezing_violations
from evener.schedules import ScheduleShape, gpipe

FREEZING = Freezing(((0, 500_000, 1_000_000), (250_000, 0, 1)))


def test_lines_read_back() -> None:
    assert FREEZING.lines() == ["0 500000 1000000", "250000 0 1"]
    assert Freezing.parse(FREEZING.lines()) == FREEZING


@pytest.mark.parametrize("word", ["half", "-1", "0.5", "²"])
def test_what_is_no_share_is_named(word: str) -> None:
    with pytest.raises(ValueError, match="stage 1") as caught:
        Freezing.parse(["0 1", f"2 {word}"])
    assert str(caught.value) == (
        f"stage 1: {word!r} is no share; give whole numbers, in parts per million"
    )


def test_a_share_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ValueError, match="stage 1") as caught:
        Freezing.parse(["0 1", "2 " + "9" * 5000])
    assert str(caught.value) == (
        "stage 1: 999999999... is a number of 5000 digits: write at most 18"
    )


def test_shares() -> None:
    assert FREEZING.of(0, 1) == 500_000
    # (0 + 500000 + 1000000 + 250000 + 0 + 1) / 6 = 291666.8
    assert FREEZING.mean_ppm == 291_667
    # A third of each, rounded down.
    assert FREEZING.scaled(1, 3) == Freezing(((0, 166_666, 333_333), (83_333, 0, 0)))
    assert FREEZING.scaled(5, 5) == FREEZING
    assert Freezing.uniform(gpipe(ScheduleShape(2, 3)), 7) == Freezing(((7, 7, 7), (7, 7, 7)))


def test_violations() -> None:
    found = freezing_violations(
        Freezing(((0, 1_000_001), (600_000, 600_000, 600_000), (0, 0))),
        num_stages=2,
        num_microbatches=2,
        max_share_ppm=550_000,
    )
    assert list(found) == [
        "has 3 lines, but the schedule has 2 stages; give one line per stage",
        "stage 0 freezes 1000001 parts per million of microbatch 1; 1000000 is everything",
        "stage 1 has 3 shares, but the step has 2 microbatches; give one each",
        (
            "stage 1 freezes 600000 parts per million on average, but the job allows 550000; "
            "freeze less, or raise freeze.max_share"
        ),
    ]
    assert not list(
        freezing_violations(FREEZING, num_stages=2, num_microbatches=3, max_share_ppm=500_000)
    )
