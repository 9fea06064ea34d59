"""The shares of TimelyFreeze: the numbers of a small pipeline, and optimality on random ones."""

from dataclasses import replace
from random import Random

import pytest

from evener.cost.table import CostTable, SliceCosts
from evener.ir.freezing import FREEZABLE_KINDS, WHOLE_PPM, Freezing
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.planner.freezing.linear_program import best_shares
from evener.planner.freezing.times import frozen_costs, least_ns
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.testing.random_costs import random_costs
from evener.testing.random_schedules import (
    random_lowered_schedule,
    random_schedule,
    with_random_braids,
)

UNIT = 10**7


def solved(name: str, max_share: float, *, lowered: bool) -> tuple[Schedule, CostTable, Freezing]:
    """4 stages, 8 microbatches, F = 1, B between I = 1 and I + W = 2 units."""
    schedule = SCHEDULES[name](ScheduleShape(4, 8))
    if lowered:
        schedule = lower(schedule, clip=True)
    costs = CostTable.uniform(4, 4, forward_ns=UNIT, input_ns=UNIT, weight_ns=UNIT)
    least = least_ns(schedule, costs)
    found = best_shares(schedule, costs, least=least, max_share_ppm=round(max_share * WHOLE_PPM))
    step_ns = simulate(schedule, frozen_costs(schedule, costs, least, found.freezing)).step_ns
    # Shares are rounded down to a millionth: 8 microbatches of 1 unit lose at most 8 millionths.
    assert found.step_ns * (1 - 1e-9) <= step_ns <= found.step_ns + 8e-6 * UNIT + 100
    return schedule, costs, found.freezing


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(
    ("name", "max_share", "step", "mean", "uniform"),
    [
        # With nothing frozen (8 + 3) * (1 + 2) = 33. The last stage, which is busy from its first
        # forward to its last backward, saves r in each of 8 backwards, and the last microbatch's
        # way back through stages 2, 1, 0 is frozen whole: 33 - 8 r - 3.
        # Uniform freezing of the same mean: 11 * (3 - mean).
        ("one_f_one_b", 0.2, 28.4, 0.19375, 30.86875),
        ("one_f_one_b", 0.5, 26.0, 0.375, 28.875),
        ("one_f_one_b", 0.8, 23.6, 0.675, 25.575),
        ("one_f_one_b", 1.0, 22.0, 0.875, 23.375),
        # GPipe does the same, but for r = 0.2 a stage may save 1.6 in all, too little to freeze the
        # last way back whole and keep up with the stage behind before.
        ("gpipe", 0.2, 29.55, 0.2, 30.8),
        ("gpipe", 0.5, 26.0, 0.5, 27.5),
        ("gpipe", 0.8, 23.6, 0.8, 24.2),
        # ZB-H1 takes 27, and a worker does 8 W: 27 - 8 r, but no less than F and I, 11 * 2 = 22.
        ("zb_h1", 0.2, 25.4, 0.2, 26.0),
        ("zb_h1", 0.5, 23.0, 0.5, 24.5),
        ("zb_h1", 1.0, 22.0, 0.625, 23.875),
    ],
)
def test_known_steps(
    name: str, max_share: float, step: float, mean: float, uniform: float, lowered: bool
) -> None:
    schedule, costs, freezing = solved(name, max_share, lowered=lowered)
    least = least_ns(schedule, costs)

    def units(freezing: Freezing) -> float:
        return simulate(schedule, frozen_costs(schedule, costs, least, freezing)).step_ns / UNIT

    assert units(freezing) == pytest.approx(step, abs=1e-5)
    assert freezing.mean_ppm / WHOLE_PPM == pytest.approx(mean, abs=1e-5)
    assert units(Freezing.uniform(schedule, freezing.mean_ppm)) == pytest.approx(uniform, abs=1e-4)


def large(costs: CostTable) -> CostTable:
    """The same a million times slower, so that rounding to a nanosecond does not matter."""
    scale = 10**6
    slices = costs.slices
    if slices is not None:
        slices = SliceCosts(
            time_ns=slices.time_ns * scale,
            forward_bytes=slices.forward_bytes * scale,
            backward_bytes=slices.backward_bytes * scale,
        )
    return replace(
        costs,
        time_ns=costs.time_ns * scale,
        latency_ns=costs.latency_ns * scale,
        forward_bytes=costs.forward_bytes * scale,
        backward_bytes=costs.backward_bytes * scale,
        all_reduce_ns=None if costs.all_reduce_ns is None else costs.all_reduce_ns * scale,
        slices=slices,
        single_ns={action: time_ns * scale for action, time_ns in costs.single_ns.items()},
    )


@pytest.mark.parametrize("seed", range(16))
def test_no_random_freezing_within_the_cap_is_faster(seed: int) -> None:
    random = Random(seed)
    schedule = (random_lowered_schedule if seed % 2 else random_schedule)(random)
    if seed % 4 == 0:
        schedule = with_random_braids(random, schedule)
    costs = large(random_costs(random, schedule))
    least = {
        action: max(costs.wait_ns(worker, action), random.randint(0, 30 * 10**6))
        for worker, action in schedule.actions()
        if action.kind in FREEZABLE_KINDS
    }
    cap_ppm = random.choice((0, 300_000, 700_000, WHOLE_PPM))
    found = best_shares(schedule, costs, least=least, max_share_ppm=cap_ppm)

    def step_ns(freezing: Freezing) -> int:
        return simulate(schedule, frozen_costs(schedule, costs, least, freezing)).step_ns

    ours_ns = step_ns(found.freezing)
    # A share is short of the exact one by a millionth of at most 50 ms, and a nanosecond.
    assert (
        found.step_ns * (1 - 1e-8)
        <= ours_ns
        <= found.step_ns * (1 + 1e-8) + 51 * (schedule.num_actions)
    )
    for row in found.freezing.share_ppm:
        assert sum(row) <= cap_ppm * len(row)
    for _ in range(20):
        drawn = [[random.random() for _ in row] for row in found.freezing.share_ppm]
        scales = [cap_ppm * len(row) / max(sum(row), len(row) * cap_ppm / 1e6) for row in drawn]
        rows = (
            tuple(min(WHOLE_PPM, int(share * scale)) for share in row)
            for row, scale in zip(drawn, scales, strict=True)
        )
        assert step_ns(Freezing(tuple(rows))) >= found.step_ns * (1 - 1e-8)


def test_what_freezing_does_not_shorten_is_not_frozen() -> None:
    schedule = SCHEDULES["one_f_one_b"](ScheduleShape(2, 3))
    costs = CostTable.uniform(2, 2, forward_ns=UNIT, input_ns=UNIT, weight_ns=0)
    found = best_shares(schedule, costs, least=least_ns(schedule, costs), max_share_ppm=WHOLE_PPM)
    assert found.freezing == Freezing(((0, 0, 0), (0, 0, 0)))
    assert found.step_ns == pytest.approx((3 + 1) * 2 * UNIT)
