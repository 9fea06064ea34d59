"""Step times that others published for measured layer times: `tests/data/hybrid_profiles.toml`.

A unit is one tick of 0.01 ms.  The published figures are those of layer times each rounded to the
nearest tick and then added up (rounding the sum of a stage gives 133029 instead of 133121).
"""

import tomllib
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import pytest

from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules import ScheduleShape, one_f_one_b, split_backward
from evener.sim import bubbles, simulate

PROFILES = Path(__file__).parents[1] / "data" / "hybrid_profiles.toml"
SHAPE = ScheduleShape(4, 8)


def stage_ticks(model: str, num_stages: int) -> list[tuple[int, int, int]]:
    """(forward, input gradient, weight gradient) of stages of equally many layers."""
    text = PROFILES.read_text(encoding="utf-8")
    profile = tomllib.loads(text, parse_float=Decimal)[model]
    pattern = profile["pattern"]
    size = len(pattern) // num_stages
    stages = [pattern[first : first + size] for first in range(0, len(pattern), size)]
    stages[0], stages[-1] = "E" + stages[0], stages[-1] + "L"
    ticks = []
    for layers in stages:
        forward, input_grad, weight_grad = (
            sum(
                int((profile[layer][part] * 100).quantize(Decimal(1), ROUND_HALF_EVEN))
                for layer in layers
            )
            for part in range(3)
        )
        ticks.append((forward, input_grad, weight_grad))
    return ticks


@pytest.fixture
def nemotron() -> CostTable:
    """nemotron-nano-v2-9B in 4 stages of 14 layers, E with the first, L with the last."""
    ticks = stage_ticks("nemotron-nano-v2-9B", 4)
    forward, input_grad, weight_grad = (list(column) for column in zip(*ticks, strict=True))
    backward = [i + w for i, w in zip(input_grad, weight_grad, strict=True)]
    times = {Kind.F: forward, Kind.B: backward, Kind.I: input_grad, Kind.W: weight_grad}
    return CostTable.of_stages(4, times)


@pytest.mark.parametrize(
    ("schedule", "ticks"),
    [(one_f_one_b(SHAPE), 133121), (split_backward(one_f_one_b(SHAPE)), 126300)],
    ids=["whole", "split"],
)
def test_nemotron_nano_9b(nemotron: CostTable, schedule: Schedule, ticks: int) -> None:
    timeline = simulate(schedule, nemotron)
    assert timeline.step_ns == ticks
    assert bubbles(timeline).busy_ns == (85000, 76160, 76160, 103456)
