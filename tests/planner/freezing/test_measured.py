from array import array

from evener.ir.passes import lower
from evener.ir.text import parse_action
from evener.ir.timeline import Timeline
from evener.planner.freezing.measured import measured_least_ns, measured_single_costs
from evener.schedules import ScheduleShape, one_f_one_b


def timeline(durations_ns: dict[str, int], *, longer_ns: int = 0) -> Timeline:
    """Two stages, one microbatch; only durations count. ``1:`` before an action: of worker 1."""
    schedule = lower(one_f_one_b(ScheduleShape(2, 1)), clip=True)
    start_ns, end_ns = array("q"), array("q")
    for worker, action in schedule.actions():
        duration = durations_ns.get(f"{worker}:{action}", durations_ns.get(str(action), 0))
        start_ns.append(7)
        end_ns.append(7 + duration + longer_ns)
    return Timeline("measured", schedule, start_ns, end_ns)


TIMES = {"0F0": 10, "1F0": 11, "1B0": 20, "0B0": 21, "0STEP": 3, "1STEP": 4}
MESSAGES = {"0SEND_F0": 5, "1RECV_F0": 5, "1SEND_B0": 9, "0RECV_B0": 9}
NORM = {"0NORM": 40, "1NORM": 6}


def test_medians_of_single_actions_without_what_they_waited() -> None:
    measured = [timeline(TIMES | MESSAGES | NORM, longer_ns=more) for more in (0, 2, 900)]
    costs = measured_single_costs(measured)
    found = {str(action): time_ns for action, time_ns in costs.single_ns.items()}
    # The middle one of three is 2 longer than written above; both NORM are the shorter one.
    expected = {name: time_ns + 2 for name, time_ns in TIMES.items()}
    assert found == expected | {"0NORM": 8, "1NORM": 8}
    assert costs.latency_ns.tolist() == [[0, 7], [11, 0]]
    assert costs.message_ns(0, 1, parse_action("0SEND_F0")) == 0


def test_what_is_left_with_everything_frozen() -> None:
    found = measured_least_ns([timeline(TIMES)])
    assert found == {parse_action("1B0"): 20, parse_action("0B0"): 21}
