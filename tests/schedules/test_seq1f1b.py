"""The figures of the Seq1F1B paper: bubble and memory fall with the number of slices."""

import pytest

from evener.ir.text import format_schedule
from evener.schedules import SCHEDULES, ScheduleShape, one_f_one_b
from evener.sim import simulate
from evener.testing.worlds import equal_costs

# A microbatch takes F = 1 and B = 2 on a stage; a slice takes 1/k of it, in 60ths.
UNIT = 60


def step(name: str, shape: ScheduleShape) -> tuple[float, float]:
    """Step time in units, and the most microbatches that worker 0 holds of its stage."""
    part = UNIT // shape.num_slices
    costs = equal_costs(
        shape.num_workers,
        shape.num_stages,
        forward_ns=part,
        input_grad_ns=part,
        weight_grad_ns=part,
    )
    timeline = simulate(SCHEDULES[name](shape), costs)
    return timeline.step_ns / UNIT, timeline.peak_bytes[0] / shape.num_slices


@pytest.mark.parametrize(
    ("p", "m", "k", "bubble", "held"),
    [
        # (p-1)(tF+tB)/k and (k+p-1)/k: 3 x 3 / k, and 1 + 3/k.
        (4, 8, 1, 9.0, 4.0),
        (4, 8, 2, 4.5, 2.5),
        (4, 8, 4, 2.25, 1.75),
        # 7 x 3 / 4, and 1 + 7/4, where 1F1B holds 8.
        (8, 16, 4, 5.25, 2.75),
    ],
)
def test_published_bubble_and_memory(p: int, m: int, k: int, bubble: float, held: float) -> None:
    assert step("seq1f1b", ScheduleShape(p, m, num_slices=k)) == (3 * m + bubble, held)


def test_one_slice_is_1f1b() -> None:
    shape = ScheduleShape(4, 8)
    assert SCHEDULES["seq1f1b"](shape).workers == one_f_one_b(shape).workers


def test_backwards_are_last_in_first_out_over_slices() -> None:
    # Worker 1 begins with p - w - 1 + k = 2 forwards.
    assert format_schedule(
        SCHEDULES["seq1f1b"](ScheduleShape(2, 2, num_slices=2))
    ).splitlines() == [
        "# schedule seq1f1b",
        "# stages 2",
        "# microbatches 2",
        "# slices 2",
        "0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1 0B1.0",
        "1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0",
    ]
