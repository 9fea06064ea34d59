"""Braids: what may be one, what they become in text and passes, and that they keep together."""

from random import Random

import pytest

from evener.errors import ScheduleError
from evener.interp.program import compile_program
from evener.ir.action import Action, Kind
from evener.ir.check import check, violations
from evener.ir.passes import lower, replicate
from evener.ir.schedule import Schedule
from evener.ir.text import diff_schedules, format_schedule, parse_action, parse_schedule
from evener.schedules.forward_only import forward_only
from evener.testing.random_schedules import random_schedule, with_random_braids


def schedule_of(*rows: str, stages: int, microbatches: int) -> Schedule:
    header = f"# schedule handmade\n# stages {stages}\n# microbatches {microbatches}\n"
    return parse_schedule(header + "\n".join(rows))


TWO = schedule_of(
    "0F0 0F1 (0F2 0B0) 0B1 0B2", "1F0 1B0 (1F1 1F2) 1B1 1B2", stages=2, microbatches=3
)

LOWERED = [
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 (0F2 0B0) 0SEND_F2 0RECV_B1 0B1 0RECV_B2 0B2 0STEP",
    "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1RECV_F2 (1F1 1F2) 1B1 1SEND_B1 1B2 1SEND_B2 1STEP",
]


def test_brackets_are_read_and_written() -> None:
    assert TWO.braids == {Action(0, Kind.F, 2), Action(1, Kind.F, 1)}
    assert format_schedule(TWO).splitlines()[-2:] == [
        "0F0 0F1 (0F2 0B0) 0B1 0B2",
        "1F0 1B0 (1F1 1F2) 1B1 1B2",
    ]
    check(TWO)


def test_a_braid_is_a_difference() -> None:
    plain = schedule_of(
        "0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1B0 (1F1 1F2) 1B1 1B2", stages=2, microbatches=3
    )
    assert diff_schedules(plain, TWO) == "worker 0, action 2: -0F2 -0B0 +(0F2 +0B0)"


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("(0F0) 0B0", "column 1: '(0F0)' holds 1 action"),
        ("(0F0 (0F1 0B0) 0B1", "column 1: '(0F0' is not closed"),
        ("(0F0 0F1 0B0) 0B1", "column 1: '(0F0' holds 3 actions"),
        ("0F0 0B0)", "column 5: '0B0)' closes no bracket"),
        ("0F0 (0B0", "column 5: '(0B0' is not closed"),
        ("(0F0 0F1 0B0 0B1", "column 1: '(0F0' is not closed"),
    ],
)
def test_brackets_that_do_not_hold_two_are_refused(row: str, wrong: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        schedule_of(row, stages=1, microbatches=2)
    assert caught.value.violations == (
        f"line 4, {wrong}: brackets hold the two actions of a braid, such as (0F3 0B1)",
    )


def test_brackets_touch_their_actions() -> None:
    with pytest.raises(ScheduleError) as caught:
        schedule_of("( 0F0 0B0 ) ()", stages=1, microbatches=1)
    assert caught.value.violations == tuple(
        f"line 4, column {column}: '{word}' stands alone: brackets touch an action: (0F3 0B1)"
        for column, word in ((1, "("), (11, ")"), (13, "()"))
    )


@pytest.mark.parametrize(
    ("row", "stages", "text"),
    [
        ("0F0 (0B0 0F1) 0B1", 1, "0B0 and 0F1 make no braid: write F first"),
        ("0F0 0B0 (0F1 0STEP) 0B1", 1, "0F1 and 0STEP make no braid: write F first"),
        ("0F0 1F0 1B0 0B0 (0F1 1F1) 1B1 0B1", 2, "1F1 is braided with 0F1, which it needs"),
    ],
)
def test_what_makes_no_braid_is_said(row: str, stages: int, text: str) -> None:
    found = violations(schedule_of(row, stages=stages, microbatches=2))
    assert any(text in violation for violation in found), found


def test_a_braid_of_nobody_and_one_that_nothing_follows() -> None:
    plain = schedule_of("0F0", stages=1, microbatches=1)
    last = Schedule("x", 1, 1, plain.workers, braids=frozenset({Action(0, Kind.F, 0)}))
    assert any("nothing stands behind it" in text for text in violations(last, forward_only=True))
    nobody = Schedule("x", 1, 1, plain.workers, braids=frozenset({Action(0, Kind.F, 7)}))
    assert violations(nobody, forward_only=True) == [
        "0F7 begins a braid, but no worker runs it: add it, or drop the braid"
    ]


def test_two_braids_do_not_share_an_action() -> None:
    rows = (tuple(Action(0, Kind.F, m) for m in range(3)),)
    schedule = Schedule("x", 1, 3, rows, braids=frozenset(rows[0][:2]))
    assert "worker 0: 0F1 is in two braids: keep one" in violations(schedule, forward_only=True)


def test_a_braid_that_waits_for_itself_through_another_worker_is_a_deadlock() -> None:
    # 0B0 needs 1B0, before which worker 1 runs 1F1, which needs 0F1.
    schedule = schedule_of("0F0 (0F1 0B0) 0B1", "1F0 1F1 1B0 1B1", stages=2, microbatches=2)
    (text,) = violations(schedule)
    assert text.startswith("deadlock")
    with pytest.raises(ScheduleError, match="deadlock"):
        compile_program(schedule)


def test_messages_stand_around_a_braid() -> None:
    lowered = lower(TWO)
    check(lowered)
    assert lowered.braids == TWO.braids
    assert format_schedule(lowered).splitlines()[-2:] == LOWERED


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_random_braids_survive_text_and_passes(first: int) -> None:
    num_braids = 0
    for seed in range(first, first + 10):
        random = Random(seed)
        schedule = with_random_braids(random, random_schedule(random))
        num_braids += len(schedule.braids)
        assert parse_schedule(format_schedule(schedule)) == schedule
        check(lower(schedule, clip=True))
        twice = replicate(schedule, 2)
        assert len(twice.braids) == 2 * len(schedule.braids)
        check(lower(twice))
    assert num_braids > 0


def test_an_evaluation_has_no_braids() -> None:
    assert not forward_only(TWO).braids
    check(forward_only(TWO), forward_only=True)


def test_slices_are_not_braided() -> None:
    texts = ["0F0.0", "0F0.1", "0F1.0", "0B0.1", "0B0.0", "0F1.1", "0B1.1", "0B1.0"]
    row = tuple(map(parse_action, texts))
    schedule = Schedule("x", 1, 2, (row,), num_slices=2, braids=frozenset(row[2:3]))
    assert violations(schedule) == [
        "worker 0: 0F1.0 begins a braid: braid whole microbatches, not slices"
    ]
