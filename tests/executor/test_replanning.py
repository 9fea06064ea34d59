"""What a rank does between two steps, with everybody else left out."""

from typing import Any

import pytest

from evener.executor import replanning
from evener.executor.replanning import Replanning


class Alone:
    """The seat of a single rank, which hears what it says."""

    plan = model = None

    def __init__(self) -> None:
        self.transport = self
        self.asked = 0

    def gather(self, value: object) -> list[object]:
        self.asked += 1
        return [value]

    def worker_of(self, rank: int) -> int:
        return rank


class Options:
    window = 4

    def __init__(self) -> None:
        self.said: list[str] = []
        self.tell = self.said.append

    def world(self, plan: object, model: object) -> None:
        """Nothing is known of it."""


@pytest.mark.parametrize("place", ["note", "proposal"])
def test_a_planner_that_crashes_does_not_end_the_training(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crashing:
        def __init__(self, *parts: object) -> None:
            del parts

        def note(self, timeline: object) -> None:
            if place == "note":
                raise ZeroDivisionError("by zero")

        def proposal(self, step: int) -> None:
            raise ZeroDivisionError("by zero")

        def close(self) -> None:
            """No search runs."""

    monkeypatch.setattr(replanning, "Replanner", Crashing)
    seat, options = Alone(), Options()
    crashing: Any = Replanning(options, seat, is_first=True)  # type: ignore[arg-type]
    for step in range(1, 13):
        crashing.note(None)
        assert not crashing.switches_before(step)
    assert seat.asked == 3  # before steps 4, 8 and 12: the others still ask
    assert options.said == [
        "re-plan: ends here, and training goes on with the present plan: ZeroDivisionError: by zero"
    ]


def test_without_a_wish_nobody_is_asked() -> None:
    seat = Alone()
    idle: Any = Replanning(None, seat, is_first=True)  # type: ignore[arg-type]
    idle.note(None)
    assert not idle.switches_before(4)
    assert seat.asked == 0
