"""Several updates between two flushes: which weights are read, and what is refused."""

from dataclasses import replace

import pytest

from evener.errors import ScheduleError
from evener.ir.check import violations
from evener.ir.schedule import Schedule, Updates
from evener.ir.text import format_schedule, parse_action, parse_schedule
from evener.ir.versions import versions_read


def schedule(*rows: str, updates: Updates, num_microbatches: int = 3) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    num_stages = 1 + max(action.stage for actions in workers for action in actions)
    return Schedule("test", num_stages, num_microbatches, workers, updates=updates)


def versions(world: Schedule) -> dict[str, int]:
    return {str(action): version for action, version in versions_read(world).items()}


# One microbatch per update. 0F1 stands before 0STEP0 and its backward behind it.
STALE = "0F0 0F1 0B0 0STEP0 0B1 0STEP1 0F2 0B2 0STEP2"


def test_an_action_reads_the_weights_at_its_place() -> None:
    world = schedule(STALE, updates=Updates(3, 1))
    assert violations(world) == []
    assert versions(world) == {"0F0": 0, "0F1": 0, "0B0": 0, "0B1": 1, "0F2": 2, "0B2": 2}


def test_stashed_weights_are_read_with_the_same_delay_forward_and_backward() -> None:
    world = schedule(STALE, updates=Updates(3, 1, stashed=True))
    assert violations(world) == []
    assert versions(world) == {"0F0": 0, "0B0": 0, "0F1": 0, "0B1": 0, "0F2": 1, "0B2": 1}


def test_weights_that_are_too_old_are_refused_with_both_sides() -> None:
    world = schedule("0F0 0F1 0F2 0B0 0STEP0 0B1 0STEP1 0B2 0STEP2", updates=Updates(3, 1))
    assert violations(world) == [
        (
            "worker 0: 0F2 is of update 2 and finds version 0 of the weights, 2 updates behind; "
            "the schedule allows 1: move it behind 0STEP0"
        )
    ]
    assert violations(replace(world, updates=Updates(3, 2))) == []


def test_a_forward_is_repeated_with_its_own_weights() -> None:
    """0R1 stands behind 0STEP0, 0F1 in front of it; with weights kept for it, all is well."""
    world = schedule("0F0 0F1 0B0 0STEP0 0R1 0B1 0STEP1 0F2 0B2 0STEP2", updates=Updates(3, 1))
    assert violations(world) == [
        (
            "worker 0: 0R1 finds version 1 of the weights, and the forward that it repeats had "
            "version 0: move it in front of 0STEP0, or leave it out"
        )
    ]
    assert violations(replace(world, updates=Updates(3, 1, stashed=True))) == []


def test_without_staleness_every_forward_comes_after_the_step_before() -> None:
    assert violations(schedule(STALE, updates=Updates(3, 0))) == [
        (
            "worker 0: 0F1 is of update 1 and finds version 0 of the weights, 1 updates behind; "
            "the schedule allows 0: move it behind 0STEP0"
        )
    ]
    ordinary = "0F0 0B0 0STEP0 0F1 0B1 0STEP1 0F2 0B2 0STEP2"
    assert violations(schedule(ordinary, updates=Updates(3, 0))) == []


def test_gradients_of_two_updates_do_not_mix() -> None:
    world = schedule("0F0 0F1 0B0 0B1 0STEP0 0STEP1 0F2 0B2 0STEP2", updates=Updates(3, 2))
    assert violations(world) == [
        (
            "worker 0: 0B1 is of update 1 and stands before 0STEP0, so the gradients of two "
            "updates would mix: move it behind"
        )
    ]


def test_a_worker_steps_with_all_its_stages_together() -> None:
    rows = "0F0 1F0 1B0 1STEP0 0B0 0STEP0 0F1 1F1 1B1 0B1 0STEP1 1STEP1"
    assert violations(schedule(rows, updates=Updates(2, 1), num_microbatches=2)) == [
        (
            "worker 0: 0STEP0 stands behind the STEPs of update 0: a worker steps with all its "
            "stages together, update after update"
        )
    ]


def test_steps_name_their_update_and_each_is_there_once() -> None:
    found = violations(schedule("0F0 0B0 0STEP 0F1 0B1 0STEP7 0F2 0B2", updates=Updates(3, 1)))
    assert found == [
        "worker 0: 0STEP: the schedule makes 3 updates: write which, such as 0STEP0",
        "worker 0: 0STEP7: updates are 0 to 2",
    ]
    found = violations(schedule("0F0 0B0 0STEP0 0F1 0B1 0F2 0B2 0STEP2", updates=Updates(3, 1)))
    assert found[0] == "worker 0: 0STEP1 is listed 0 times: once is right"


def test_updates_without_steps_and_of_unequal_size_are_refused() -> None:
    world = schedule("0F0 0B0 0F1 0B1", updates=Updates(2, 1), num_microbatches=2)
    assert violations(world) == ["the schedule makes 2 updates, but lists no STEP: add them"]
    world = schedule("0F0 0B0 0F1 0B1 0F2 0B2", updates=Updates(2, -1))
    assert violations(world) == [
        "3 microbatches do not divide into 2 updates: give each update as many",
        "weights cannot be stale by -1 updates: write 0 or more",
    ]
    world = schedule("0F0 0B0", updates=Updates(0), num_microbatches=1)
    assert violations(world) == ["0 updates: there must be at least 1"]


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("3 stale 9", "stale by 9 updates where there are 3: write 2 at most"),
        ("3 stale 3", "stale by 3 updates where there are 3: write 2 at most"),
        ("1 stale 5 stashed", "stale by 5 updates where there are 1: write 0 at most"),
    ],
)
def test_weights_cannot_lack_more_updates_than_there_are(header: str, text: str) -> None:
    written = format_schedule(schedule(STALE, updates=Updates(3, 2))).replace("3 stale 2", header)
    assert violations(parse_schedule(written))[0] == f"weights cannot be {text}"


def test_a_written_out_schedule_reduces_every_update() -> None:
    rows = ["0F0 0B0 0REDUCE0 0STEP0 0F2 0B2 0STEP1", "0F1 0B1 0REDUCE0 0STEP0 0F3 0B3 0STEP1"]
    world = schedule(*rows, updates=Updates(2, 0), num_microbatches=4)
    assert violations(world) == [
        "workers 0, 1 hold stage 0, but its gradients are not added up: add 0REDUCE1 on each"
    ]


@pytest.mark.parametrize("stashed", [False, True])
def test_the_text_says_how_many_updates_and_how_stale(stashed: bool) -> None:
    world = schedule(STALE, updates=Updates(3, 1, stashed))
    text = format_schedule(world)
    assert f"# updates 3 stale 1{' stashed' if stashed else ''}\n" in text
    assert parse_schedule(text) == world
    assert "updates" not in format_schedule(replace(world, updates=Updates()))


@pytest.mark.parametrize("value", ["3", "0 stale 1", "3 stale", "3 stale 1 kept", "x stale 1"])
def test_a_wrong_line_of_updates_is_refused(value: str) -> None:
    text = format_schedule(schedule(STALE, updates=Updates(3, 1)))
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(text.replace("3 stale 1", value))
    assert caught.value.violations == (
        (
            f"'# updates {value}': write how many and how stale weights may be, such as '4 stale "
            "1', or '4 stale 1 stashed'"
        ),
    )
