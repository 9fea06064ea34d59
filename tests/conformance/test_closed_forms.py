"""The published formulas over the grid p = 1..16, m = 1..64, recomputed here from the papers.

Of the schedules whose formula holds for every shape; the others have theirs in tests/schedules.
"""

from collections.abc import Callable, Iterable

import pytest

from evener.schedules import SCHEDULES, ScheduleShape, StageTimes
from evener.sim import simulate_many
from evener.testing.worlds import equal_costs

# Equal, W light, F heavy, I heavy: in all of them W is no longer than F and than I, as the
# formulas of the zero-bubble schedules ask for.
TIMES = (StageTimes(1, 1, 1), StageTimes(10, 12, 8), StageTimes(9, 4, 4), StageTimes(3, 11, 2))

# Per schedule: (p, m, v, F, I, W) -> step time.
FORMULAS: dict[str, Callable[[int, int, int, int, int, int], int]] = {
    # m (tF + tB) of work and (p - 1)(tF + tB) of bubble.
    "gpipe": lambda p, m, v, f, i, w: (m + p - 1) * (f + i + w),
    "one_f_one_b": lambda p, m, v, f, i, w: (m + p - 1) * (f + i + w),
    # Of a stage 1/v as thick; (p - 1)(tF + tB) of bubble from p microbatches on.  Fewer leave
    # p - m holes in each of the v - 1 passes that do not come first.
    "interleaved_one_f_one_b": lambda p, m, v, f, i, w: (
        (m * v + p - 1 + max(0, p - m) * (v - 1)) * (f + i + w)
    ),
    # (p - 1)(tF + tI - tW) of bubble from p microbatches on; m of them have only m - 1 W to
    # put into the waits.
    "zb_h1": lambda p, m, v, f, i, w: m * (f + i + w) + (p - 1) * (f + i) - (min(m, p) - 1) * w,
    # The same with 2p - 1 in flight; then the last worker, which starts (p - 1) tF late and
    # never waits, can be the one that ends last.
    "zb_h2": lambda p, m, v, f, i, w: (
        m * (f + i + w) + max((p - 1) * (f + i) - (min(m, 2 * p - 1) - 1) * w, (p - 1) * f)
    ),
}


def check_grid(name: str, microbatches: Iterable[int], chunks: Iterable[int]) -> None:
    wrong = []
    for p, m, v in ((p, m, v) for p in range(1, 17) for m in microbatches for v in chunks):
        schedule = SCHEDULES[name](ScheduleShape(p, m, v))
        costs = [
            equal_costs(
                p,
                p * v,
                forward_ns=times.forward_ns,
                input_grad_ns=times.input_grad_ns,
                weight_grad_ns=times.weight_grad_ns,
            )
            for times in TIMES
        ]
        found = [outcome.step_ns for outcome in simulate_many(schedule, costs)]
        wanted = [
            FORMULAS[name](p, m, v, t.forward_ns, t.input_grad_ns, t.weight_grad_ns) for t in TIMES
        ]
        if found != wanted:
            wrong.append((p, m, v, found, wanted))
    assert not wrong


@pytest.mark.parametrize("name", FORMULAS)
def test_step_times_on_a_part_of_the_grid(name: str) -> None:
    chunks = (2,) if name == "interleaved_one_f_one_b" else (1,)
    check_grid(name, (1, 2, 5, 16, 23, 64), chunks)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_step_times_on_the_whole_grid(name: str) -> None:
    chunks = (1, 2, 3) if name == "interleaved_one_f_one_b" else (1,)
    check_grid(name, range(1, 65), chunks)
