"""PipeDream-2BW: the order of 1F1B without a flush, one update of delay everywhere."""

from dataclasses import replace

import pytest

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.check import violations
from evener.ir.schedule import Updates
from evener.ir.versions import versions_read
from evener.schedules import SCHEDULES, ScheduleShape, one_f_one_b

ENTRY = SCHEDULES["pipedream_2bw"]


def test_it_is_one_1f1b_with_a_step_after_the_last_backward_of_each_update() -> None:
    schedule = ENTRY(ScheduleShape(2, 2, num_updates=3))
    assert " ".join(map(str, schedule.workers[0])) == (
        "0F0 0F1 0B0 0F2 0B1 0STEP0 0F3 0B2 0F4 0B3 0STEP1 0F5 0B4 0B5 0STEP2"
    )
    plain = one_f_one_b(ScheduleShape(2, 6))
    for actions, wanted in zip(schedule.workers, plain.workers, strict=True):
        assert tuple(action for action in actions if action.kind is not Kind.STEP) == wanted


@pytest.mark.parametrize(("num_workers", "size"), [(1, 1), (2, 2), (4, 4), (4, 7), (8, 8)])
def test_every_update_is_computed_with_the_weights_before_the_last_one(
    num_workers: int, size: int
) -> None:
    # W(t+1) = W(t) - lr grad f(W(t-1)): update u reads version u - 1 on every stage, forward and
    # backward; the first two read what training began with.
    schedule = ENTRY(ScheduleShape(num_workers, size, num_updates=4))
    assert violations(schedule) == []
    for action, version in versions_read(schedule).items():
        assert version == max(0, schedule.update_of(action) - 1)


def test_two_versions_are_too_few_for_fewer_microbatches_than_workers() -> None:
    with pytest.raises(ScheduleError) as caught:
        ENTRY(ScheduleShape(4, 3, num_updates=2))
    assert caught.value.violations == (
        (
            "pipedream_2bw keeps two versions of the weights, which takes as many microbatches per "
            "update as workers, but there are 3 for 4; ask for 4 or more"
        ),
    )
    assert ENTRY(ScheduleShape(4, 3)).updates == Updates()


def test_without_the_delay_the_checker_refuses_it() -> None:
    schedule = ENTRY(ScheduleShape(2, 2, num_updates=2))
    assert violations(replace(schedule, updates=Updates(2, 0)))[0] == (
        "worker 0: 0F2 is of update 1 and finds version 0 of the weights, 1 updates behind; the "
        "schedule allows 0: move it behind 0STEP0"
    )
