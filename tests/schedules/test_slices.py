"""The figures of the papers on token slices, other than Seq1F1B's own."""

import pytest

from evener.ir.memory import peak_in_flight
from evener.schedules import SCHEDULES, ScheduleShape, interleaved_one_f_one_b, zb_h1
from evener.sim import simulate
from evener.sim.stats import bubbles
from evener.testing.worlds import equal_costs, unit_costs


def step_ns(name: str, shape: ScheduleShape, *, part_ns: int) -> int:
    """With F = I = W = ``part_ns`` for every slice on every stage."""
    costs = equal_costs(
        shape.num_workers,
        shape.num_stages,
        forward_ns=part_ns,
        input_grad_ns=part_ns,
        weight_grad_ns=part_ns,
    )
    return simulate(SCHEDULES[name](shape), costs).step_ns


@pytest.mark.parametrize(
    ("p", "n", "m", "held", "of_a_microbatch"),
    [
        # n + 2(p-1) slices; (1 + 2(p-1)/n)/p of a microbatch's activations on all workers.
        (8, 32, 2, 46, 0.1796875),
        (4, 8, 2, 14, 0.4375),
    ],
)
def test_slimpipe_memory(p: int, n: int, m: int, held: int, of_a_microbatch: float) -> None:
    schedule = SCHEDULES["slimpipe"](ScheduleShape(p, m, num_slices=n))
    assert peak_in_flight(schedule) == tuple(n + 2 * (p - 1 - w) for w in range(p))
    assert max(peak_in_flight(schedule)) == held
    assert held / n / p == of_a_microbatch


def test_slimpipe_bubble() -> None:
    # p = 8, n = 32, m = 2: (p-1)/(n m+p-1) = 7/71 of the step; in microbatches of F = 1 and B = 2
    # the step is 6 + 7 x 3/32 = 6.65625.
    shape = ScheduleShape(8, 2, num_slices=32)
    timeline = simulate(SCHEDULES["slimpipe"](shape), unit_costs(8, 8))
    assert timeline.step_ns / 32 == 6.65625
    assert bubbles(timeline).bubble_fraction == pytest.approx(7 / 71)
    # Seq1F1B has the same bubble with p - 1 slices less.
    seq1f1b = SCHEDULES["seq1f1b"](shape)
    assert simulate(seq1f1b, unit_costs(8, 8)).step_ns == timeline.step_ns
    assert max(peak_in_flight(seq1f1b)) == 39


@pytest.mark.parametrize(("p", "n"), [(4, 8), (4, 32), (8, 16)])
def test_sppo_bubble_is_p_minus_1_of_n(p: int, n: int) -> None:
    # One sequence of F = 1, B = 2 in n parts: work 3 n parts, bubble (p-1)/n of it.
    step = step_ns("sppo", ScheduleShape(p, 1, num_slices=n), part_ns=1)
    assert step / (3 * n) - 1 == pytest.approx((p - 1) / n)
    assert peak_in_flight(SCHEDULES["sppo"](ScheduleShape(p, 3, num_slices=n))) == (n,) * p


@pytest.mark.parametrize("k", [1, 2, 4])
def test_interleaved_seq1f1b_has_the_published_warm_up(k: int) -> None:
    # (v-1)p + 2(p-w-1) + k - 1 forwards, and one more before the first backward; p = 4, v = 2.
    schedule = SCHEDULES["seq1f1b_interleaved"](ScheduleShape(4, 8, 2, k))
    assert peak_in_flight(schedule) == tuple(4 + 2 * (3 - w) + k for w in range(4))
    # The bubble of stages half as thick, cut in k: (p-1)(tF+tB) = 3 x 3 of 3 x 8 x 2 k parts.
    assert simulate(schedule, unit_costs(4, 8)).step_ns == 3 * 16 * k + 9


def test_without_slices_they_are_the_schedules_of_whole_microbatches() -> None:
    shape = ScheduleShape(4, 10, 2)
    assert SCHEDULES["seq1f1b_interleaved"](shape).workers == interleaved_one_f_one_b(shape).workers
    assert (
        SCHEDULES["seq1f1b_zb"](ScheduleShape(4, 8)).workers == zb_h1(ScheduleShape(4, 8)).workers
    )


def test_split_seq1f1b_has_a_third_of_the_bubble() -> None:
    # Unit times, p = 4: (p-1)(1+1-1) = 3 where Seq1F1B has (p-1)(1+2) = 9, in parts of a slice.
    shape = ScheduleShape(4, 8, num_slices=4)
    assert step_ns("seq1f1b_zb", shape, part_ns=1) == 3 * 32 + 3
    assert step_ns("seq1f1b", shape, part_ns=1) == 3 * 32 + 9
    assert peak_in_flight(SCHEDULES["seq1f1b_zb"](shape)) == (7,) * 4
