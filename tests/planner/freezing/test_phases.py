import pytest

from evener.ir.freezing import Freezing
from evener.planner.freezing.phases import Phase, Phases
from evener.spec.job import FreezeSpec


@pytest.mark.parametrize(
    ("spec", "letters"),
    [
        ({"warmup_steps": 2, "monitor_steps": 3}, "WWUUULLLFF"),
        ({"warmup_steps": 0, "monitor_steps": 1}, "ULFF"),
        ({"warmup_steps": 1, "monitor_steps": 0}, "WFF"),
        ({"warmup_steps": 0, "monitor_steps": 0}, "FF"),
    ],
)
def test_the_phases_follow_one_another(spec: dict[str, int], letters: str) -> None:
    names = dict(zip("WULF", Phase, strict=True))
    phases = Phases(FreezeSpec(**spec))
    assert [phases.of(step) for step in range(len(letters))] == [names[each] for each in letters]


def test_shares_grow_to_what_they_are_to_be() -> None:
    phases = Phases(FreezeSpec(warmup_steps=1, monitor_steps=2, ramp_steps=4))
    freezing = Freezing(((800_000, 0), (1_000_000, 10)))
    # Freezing begins with step 5, and the fourth step of the ramp is the first at the full share.
    found = [phases.ramped(freezing, step).share_ppm for step in range(5, 10)]
    assert found == [
        ((200_000, 0), (250_000, 2)),
        ((400_000, 0), (500_000, 5)),
        ((600_000, 0), (750_000, 7)),
        freezing.share_ppm,
        freezing.share_ppm,
    ]
    at_once = Phases(FreezeSpec(warmup_steps=0, monitor_steps=0, ramp_steps=0))
    assert at_once.ramped(freezing, 0) is freezing
