"""What one worker is told to do, in which order, and what it waits for."""

import pytest

from evener.errors import ScheduleError
from evener.interp.worker import WorkerProgram
from evener.ir.action import Action
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action


def schedule(*rows: str, num_stages: int = 2, num_microbatches: int = 1) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Schedule("test", num_stages, num_microbatches, workers)


def texts(actions: tuple[Action, ...]) -> list[str]:
    return [str(action) for action in actions]


def test_steps_follow_the_list_and_wait_for_receives() -> None:
    world = schedule("0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0")
    first, second = WorkerProgram(world, 0), WorkerProgram(world, 1)
    assert [(step.position, str(step.action), texts(step.waits_for)) for step in first] == [
        (0, "0F0", []),
        (1, "0SEND_F0", []),
        (2, "0RECV_B0", []),
        (3, "0B0", ["0RECV_B0"]),
    ]
    assert [texts(step.waits_for) for step in second] == [[], ["1RECV_F0"], [], []]
    assert len(first) == 4
    assert first.peer_worker(parse_action("0SEND_F0")) == 1
    assert second.peer_worker(parse_action("1RECV_F0")) == 0


def test_a_send_before_its_producer_is_refused() -> None:
    world = schedule("0SEND_F0 0F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0")
    with pytest.raises(ScheduleError) as caught:
        WorkerProgram(world, 1)
    assert str(caught.value) == (
        "schedule test cannot run\n"
        "  worker 0: 0SEND_F0 stands before 0F0, which it needs: move it behind"
    )


def test_collectives_name_their_members() -> None:
    world = schedule(
        "0F0 0B0 0REDUCE 0NORM 0STEP",
        "0F1 0B1 0REDUCE 0NORM 0STEP",
        num_stages=1,
        num_microbatches=2,
    )
    program = WorkerProgram(world, 1)
    assert program.members(parse_action("0REDUCE")) == (0, 1)
    assert {str(step.action): texts(step.waits_for) for step in program} == {
        "0F1": [],
        "0B1": [],
        "0REDUCE": [],
        "0NORM": ["0REDUCE"],
        "0STEP": ["0REDUCE", "0NORM"],
    }
