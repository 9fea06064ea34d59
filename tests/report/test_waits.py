from dataclasses import replace

from evener.ir.action import Action, Kind
from evener.ir.timeline import Timeline
from evener.report.waits import NOTHING, path_to, waited_for


def causes(timeline: Timeline) -> dict[str, str]:
    actions = [action for _, action in timeline.schedule.actions()]
    return {
        str(action): "nothing" if cause == NOTHING else str(actions[cause])
        for action, cause in zip(actions, waited_for(timeline), strict=True)
    }


def test_each_action_names_what_ended_last_before_it(predicted: Timeline) -> None:
    assert causes(predicted) == {
        "0F0": "nothing",
        "0SEND_F0": "0F0",
        "0F1": "0F0",
        "0SEND_F1": "0F1",  # ended at 2 us, together with the send before it on the link
        "0RECV_B0": "1SEND_B0",
        "0B0": "0RECV_B0",
        "0RECV_B1": "1SEND_B1",
        "0B1": "0RECV_B1",
        "1RECV_F0": "0SEND_F0",
        "1F0": "1RECV_F0",
        "1RECV_F1": "0SEND_F1",
        "1B0": "1F0",
        "1SEND_B0": "1B0",
        "1F1": "1B0",  # its message came at 3 us, the worker was busy until 5 us
        "1B1": "1F1",
        "1SEND_B1": "1B1",
    }


def test_a_busy_link_is_a_cause(make_timeline) -> None:
    # The first message takes 9 ns and holds the second one back until 10 ns.
    timeline = make_timeline(
        ["0F0 0SEND_F0 0F1 0SEND_F1 0B0 0B1", "1RECV_F0 1RECV_F1 1F0 1F1 1B0 1B1"],
        [0, 1, 1, 10, 30, 31, 1, 10, 10, 19, 20, 21],
        [1, 10, 2, 19, 31, 32, 10, 19, 11, 20, 21, 22],
    )
    assert causes(timeline)["0SEND_F1"] == "0SEND_F0"


def test_a_collective_waits_for_the_slowest_of_its_members(make_timeline) -> None:
    # Worker 1 ends its backward at 9 ns, worker 0 at 3 ns: both sum up from 9 ns on.
    timeline = make_timeline(
        ["0F0 0B0 0REDUCE 0STEP", "0F1 0B1 0REDUCE 0STEP"],
        [0, 1, 9, 10, 0, 4, 9, 10],
        [1, 3, 10, 11, 4, 9, 10, 11],
    )
    waited = waited_for(timeline)
    actions = [action for _, action in timeline.schedule.actions()]
    assert [str(actions[waited[index]]) for index in (2, 6)] == ["0B1", "0B1"]
    assert waited[3] == 2  # its own REDUCE


def test_the_path_to_the_last_action_is_the_critical_path(predicted: Timeline) -> None:
    actions = [action for _, action in predicted.schedule.actions()]
    path = " ".join(str(actions[index]) for index in path_to(7, waited_for(predicted)))
    assert path == "0F0 0SEND_F0 1RECV_F0 1F0 1B0 1F1 1B1 1SEND_B1 0RECV_B1 0B1"


def test_a_braid_waits_for_what_either_of_its_actions_needs(make_timeline) -> None:
    # 0F1 is ready at 1, but 0B0 only when 1B0 has ended at 5.
    rows = ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    start_ns, end_ns = [0, 5, 5, 12, 1, 2, 8, 9], [1, 8, 8, 14, 2, 5, 9, 12]
    timeline = make_timeline(rows, start_ns, end_ns)
    assert waited_for(timeline)[1:3] == [0, 1]
    braids = frozenset({Action(0, Kind.F, 1)})
    braided = replace(timeline, schedule=replace(timeline.schedule, braids=braids))
    assert waited_for(braided)[1:3] == [5, 5]


def test_a_braid_run_in_turn_waits_in_turn(make_timeline) -> None:
    timeline = make_timeline(["0F0 0F1 0B0 0B1"], [0, 1, 2, 4], [1, 2, 4, 6])
    braids = frozenset({Action(0, Kind.F, 1)})
    braided = replace(timeline, schedule=replace(timeline.schedule, braids=braids))
    assert waited_for(braided) == [NOTHING, 0, 1, 2]
