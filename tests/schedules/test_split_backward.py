from evener.ir.check import check
from evener.schedules import ScheduleShape, one_f_one_b, split_backward, zb_h1
from evener.sim import simulate
from evener.testing.worlds import unit_costs


def test_every_backward_becomes_two() -> None:
    schedule = split_backward(one_f_one_b(ScheduleShape(2, 2)))
    check(schedule)
    rows = [" ".join(map(str, actions)) for actions in schedule.workers]
    assert rows == ["0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1W0 1F1 1I1 1W1"]
    assert schedule.name == "one_f_one_b_split_backward"


def test_the_drain_gets_shorter() -> None:
    # p = 4, m = 6, F = I = W = 1.  Whole: (6+3)*3 = 27.  Split: the last of the 6 rounds of worker
    # 3 has its I at 3 + 17; 3 I bring it to worker 0 and 1 W follows: 24.
    whole = one_f_one_b(ScheduleShape(4, 6))
    assert simulate(whole, unit_costs(4, 4)).step_ns == 27
    assert simulate(split_backward(whole), unit_costs(4, 4)).step_ns == 24


def test_what_is_split_stays_as_it_is() -> None:
    schedule = zb_h1(ScheduleShape(3, 4))
    assert split_backward(schedule).workers == schedule.workers
