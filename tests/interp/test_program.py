"""A schedule as arrays: what they hold, by hand, and when they are built."""

import gc

import numpy as np
import pytest

from evener.errors import ScheduleError
from evener.interp import program as module
from evener.interp.program import compile_program
from evener.ir.action import Kind
from evener.ir.rules import Stream
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action

KINDS, STREAMS = list(Kind), list(Stream)


def schedule(*rows: str, num_stages: int = 2, num_microbatches: int = 1) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Schedule("test", num_stages, num_microbatches, workers)


def test_arrays_are_in_flat_order() -> None:
    # Flat: 0 0F0, 1 0SEND_F0, 2 0RECV_B0, 3 0B0, 4 0REDUCE>1, 5 0STEP
    #       6 1RECV_F0, 7 1F0, 8 1B0, 9 1SEND_B0, 10 0REDUCE>1, 11 1STEP
    program = compile_program(
        schedule(
            "0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE>1 0STEP",
            "1RECV_F0 1F0 1B0 1SEND_B0 0REDUCE>1 1STEP",
        )
    )
    assert [KINDS[code] for code in program.kind] == [action.kind for action in program.actions]
    assert STREAMS[program.stream[0]] is Stream.COMPUTE
    assert STREAMS[program.stream[1]] is Stream.MESSAGE
    assert STREAMS[program.stream[4]] is Stream.COLLECTIVE
    assert program.stage.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1]
    assert program.worker.tolist() == [0] * 6 + [1] * 6
    assert program.microbatch.tolist() == [0, 0, 0, 0, -1, -1, 0, 0, 0, 0, -1, -1]
    needs = [
        program.needs_idx[first:last].tolist()
        for first, last in zip(program.needs_ptr, program.needs_ptr[1:], strict=False)
    ]
    assert needs == [[], [0], [9], [2], [3], [4], [1], [6], [], [8], [8], [10]]
    assert program.match.tolist() == [-1, 6, 9, -1, -1, -1, 1, -1, -1, 2, -1, -1]
    assert program.peer_worker.tolist() == [-1, 1, 1, -1, -1, -1, 0, -1, -1, 0, -1, -1]
    assert program.issue_after.tolist() == [-1, 0, 0, 0, 3, 3, -1, -1, 7, 8, 8, 8]
    assert program.collective.tolist() == [-1, -1, -1, -1, 0, -1, -1, -1, -1, -1, 0, -1]
    assert program.members_ptr.tolist() == [0, 2]
    assert program.members_idx.tolist() == [4, 10]
    assert program.first_of_worker.tolist() == [0, 6, 12]
    assert program.peak_in_flight == (1, 1)
    steps = [program.memory_steps[number] for number in program.memory_step]
    assert steps[0] == program.memory_steps[0] != steps[1]


def test_sends_follow_the_one_before_on_their_directed_channel() -> None:
    # Flat: 0 0F0, 1 0SEND_F0, 2 0RECV_B0, 3 0F1, 4 0SEND_F1, ...: the RECV between does not count.
    program = compile_program(
        schedule(
            "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0RECV_B1 0B0 0B1",
            "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
            num_microbatches=2,
        )
    )
    assert program.stream_after.tolist() == [-1] * 4 + [1] + [-1] * 10 + [11]


def test_the_order_respects_everything() -> None:
    program = compile_program(
        schedule(
            "0F0 0B0 0F1 0B1 0REDUCE 0NORM 0STEP",
            "0F2 0B2 0REDUCE 0NORM 0STEP",
            num_stages=1,
            num_microbatches=3,
        )
    )
    place = np.argsort(program.order)
    assert sorted(program.order.tolist()) == list(range(12))
    for index in range(12):
        for before in (
            *program.needs_idx[program.needs_ptr[index] : program.needs_ptr[index + 1]],
            program.issue_after[index],
            program.stream_after[index],
        ):
            assert before < 0 or place[before] < place[index]
    # Both members of a collective stand next to one another: flat 4 and 9, 5 and 10.
    assert abs(place[4] - place[9]) == 1
    assert abs(place[5] - place[10]) == 1


def test_a_program_is_built_once_and_goes_with_its_schedule() -> None:
    world = schedule("0F0 1F0 1B0 0B0")
    assert compile_program(world) is compile_program(world)
    key = id(world)
    assert key in module._programs
    del world
    gc.collect()
    assert key not in module._programs


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(ScheduleError) as caught:
        compile_program(schedule("0F0 0B0", "2F0"))
    assert str(caught.value) == (
        "schedule test cannot run\n"
        "  worker 1: 2F0: stages are 0 to 1\n"
        "  worker 0: 0B0 needs 1B0 or 1I0, which no worker runs: add it"
    )
