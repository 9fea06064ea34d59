"""Where SEND and RECV stand, by hand."""

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.check import violations
from evener.ir.passes import insert_messages
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action


def schedule(
    *rows: str, num_stages: int = 2, edges: str = "", num_microbatches: int = 2
) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    pairs = tuple((int(word[0]), int(word[2])) for word in edges.split()) or None
    return Schedule("test", num_stages, num_microbatches, workers, edges=pairs)


def rows(world: Schedule) -> list[str]:
    return [" ".join(map(str, actions)) for actions in world.workers]


def test_sends_follow_their_producer_and_receives_are_posted_ahead() -> None:
    # F = 1, B = 2. Worker 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9; worker 1: F0 1-2, B0 2-4, F1 4-5,
    # B1 5-7. F1 arrives at 2, where B0 starts; the gradients arrive at 4 and 7.
    world = insert_messages(schedule("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"))
    assert rows(world) == [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1",
    ]
    assert violations(world) == []


def test_a_receive_that_falls_inside_a_compute_action_stands_before_it() -> None:
    # F of stage 0 takes 3, F of stage 1 takes 2: F1 arrives at 6, inside B0 from 5 to 9.
    def durations(worker: int, action: Action) -> int:
        return {Kind.F: 3 - worker, Kind.B: 4}[action.kind]

    world = insert_messages(schedule("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"), durations)
    assert rows(world)[1] == "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1"


def test_actions_without_duration_keep_messages_before_their_reader() -> None:
    world = insert_messages(schedule("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"), lambda *_: 0)
    assert violations(world) == []


def test_stages_of_one_worker_exchange_no_messages() -> None:
    world = schedule("0F0 1F0 1B0 0B0", "0F1 1F1 1B1 0B1")
    assert insert_messages(world) == world


def test_the_peer_is_written_where_a_stage_has_several_neighbours() -> None:
    world = insert_messages(
        schedule(
            "0F0 2F0 2B0 0B0",
            "1F0 1I0 1W0",
            num_stages=3,
            edges="0>1 0>2 1>2",
            num_microbatches=1,
        )
    )
    assert rows(world) == [
        "0F0 0SEND_F0>1 2RECV_F0>1 2F0 2B0 2SEND_B0>1 0RECV_B0>1 0B0",
        "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1I0 1SEND_B0 1W0",
    ]
    assert violations(world) == []


def test_messages_between_the_same_actions_stand_in_one_order_on_all_workers() -> None:
    # Both forwards of worker 0 and of worker 1 end at 1 and 2; worker 2 gets all four at once.
    world = insert_messages(
        schedule(
            "0F0 0F1 0B0 0B1",
            "0F2 0F3 0B2 0B3",
            "1F1 1F3 1F0 1F2 1B1 1B3 1B0 1B2",
            num_microbatches=4,
        )
    )
    # At 1: microbatches 0 (worker 0) and 2 (worker 1); at 2: 1 and 3.
    assert rows(world)[2].startswith("1RECV_F0 1RECV_F2 1RECV_F1 1RECV_F3 1F1 1F3 1F0 1F2 1B1")
    assert violations(world) == []


def test_messages_are_inserted_once() -> None:
    world = insert_messages(schedule("0F0 0B0", "1F0 1B0", num_microbatches=1))
    with pytest.raises(ScheduleError) as caught:
        insert_messages(world)
    assert str(caught.value) == (
        "schedule test has messages already: pass the compute-only schedule"
    )


def test_a_stuck_schedule_is_refused() -> None:
    with pytest.raises(ScheduleError, match="cannot run to the end\n  deadlock"):
        insert_messages(schedule("1F1 0F0 1B1 0B0", "1F0 0F1 1B0 0B1"))


def test_messages_stand_where_they_would_without_side_work() -> None:
    plain = insert_messages(schedule("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"))
    world = insert_messages(
        schedule("0X:a 0F0 0F1 0X:b 0X:c 0B0 0B1 0X:d", "1F0 1B0 1X:e 1F1 1B1 1X:f")
    )
    assert rows(world) == [
        "0X:a 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0X:b 0X:c 0B0 0RECV_B1 0B1 0X:d",
        "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1X:e 1F1 1B1 1SEND_B1 1X:f",
    ]
    without = [" ".join(word for word in row.split() if "X" not in word) for row in rows(world)]
    assert without == rows(plain)
