from array import array
from dataclasses import replace

from evener.cost.table import CostTable
from evener.ir.schedule import Schedule
from evener.ir.text import parse_schedule
from evener.ir.timeline import Timeline
from evener.sim import Bubbles, bubbles, simulate

ONE_F_ONE_B = parse_schedule(
    "# schedule hand\n# stages 2\n# microbatches 3\n"
    "0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2"
)


def test_one_f_one_b_by_hand() -> None:
    # F = 2, B = 3.  Worker 0: F 0-2, F 2-4, B 7-10, F 10-12, B 12-15, B 17-20.
    #                Worker 1: F 2-4, B 4-7, F 7-9, B 9-12, F 12-14, B 14-17.
    # The first backward starts at 4, the last forward ends at 14; the step takes 20.
    costs = CostTable.uniform(2, 2, forward_ns=2, backward_ns=3)
    parts = bubbles(simulate(ONE_F_ONE_B, costs))
    assert parts == Bubbles(
        step_ns=20,
        busy_ns=(15, 15),
        warm_up_ns=(0, 2),
        cool_down_ns=(2, 3),  # 15-17, 17-20
        residual_ns=(3, 0),  # 4-7
    )
    assert parts.idle_ns == (5, 5)
    assert parts.bubble_fraction == 10 / 40


def test_where_the_first_backward_follows_the_last_forward_nothing_is_residual() -> None:
    gpipe = parse_schedule(
        "# schedule hand\n# stages 2\n# microbatches 2\n0F0 0F1 0B1 0B0\n1F0 1F1 1B1 1B0"
    )
    # Worker 0: F 0-1, F 1-2, B 5-7, B 7-9. Worker 1: F 1-2, F 2-3, B 3-5, B 5-7.
    parts = bubbles(simulate(gpipe, CostTable.uniform(2, 2)))
    assert parts == Bubbles(9, (6, 6), (1, 1), (2, 2), (0, 0))


def test_idle_time_between_last_forward_and_first_backward_counts_once_as_warm_up() -> None:
    split = parse_schedule("# schedule hand\n# stages 1\n# microbatches 1\n0F0 0X:pause 0B0\n-")
    costs = replace(CostTable.uniform(2, 1, forward_ns=2, backward_ns=3), side_ns={"pause": 5})
    # F 0-2, pause 2-7, B 7-10: worker 1 idles 7 before the backward and 3 behind it.
    assert bubbles(simulate(split, costs)) == Bubbles(10, (10, 0), (0, 7), (0, 3), (0, 0))


def test_without_a_backward_all_idle_time_is_warm_up() -> None:
    forwards = parse_schedule("# schedule hand\n# stages 2\n# microbatches 1\n0F0\n1F0")
    parts = bubbles(simulate(forwards, CostTable.uniform(2, 2, forward_ns=4)))
    assert parts == Bubbles(8, (4, 4), (4, 4), (0, 0), (0, 0))


def test_messages_are_no_work_and_a_measured_step_begins_when_its_first_action_does() -> None:
    schedule = parse_schedule(
        "# schedule hand\n# stages 2\n# microbatches 1\n"
        "0F0 0SEND_F0 0RECV_B0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0"
    )
    start_ns = [100, 110, 150, 155, 101, 120, 130, 140]
    end_ns = [110, 118, 152, 170, 119, 130, 140, 150]
    timeline = Timeline("measured", schedule, array("q", start_ns), array("q", end_ns))
    # From 100 to 170; the first backward starts at 130, which is also when the last forward ends.
    # Worker 0 works 10 and 15, idle 110-130 and 130-155; worker 1 works 120-140.
    assert bubbles(timeline) == Bubbles(70, (25, 20), (20, 20), (25, 30), (0, 0))


def test_nothing_happened() -> None:
    empty = Timeline("measured", Schedule("empty", 1, 0, ((), ())), array("q"), array("q"))
    assert bubbles(empty) == Bubbles(0, (0, 0), (0, 0), (0, 0), (0, 0))
    assert bubbles(empty).bubble_fraction == 0.0
