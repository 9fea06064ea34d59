"""Where REDUCE, NORM and STEP stand, by hand."""

import pytest

from evener.errors import ScheduleError
from evener.ir.check import violations
from evener.ir.passes import insert_step, lower
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action


def schedule(*rows: str, num_stages: int = 2, num_microbatches: int = 2) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Schedule("test", num_stages, num_microbatches, workers)


def rows(world: Schedule) -> list[str]:
    return [" ".join(map(str, actions)) for actions in world.workers]


def test_every_stage_steps_at_the_end() -> None:
    world = insert_step(schedule("0F0 1F0 1I0 0B0 1W0 0F1 1F1 1B1 0B1", ""))
    assert rows(world) == ["0F0 1F0 1I0 0B0 1W0 0F1 1F1 1B1 0B1 0STEP 1STEP", ""]


def test_a_shared_stage_is_reduced_right_after_its_last_gradient() -> None:
    world = insert_step(schedule("0F0 1F0 1B0 0B0", "0F1 1F1 1I1 1W1 0B1"))
    assert rows(world) == [
        "0F0 1F0 1B0 1REDUCE 0B0 0REDUCE 0STEP 1STEP",
        "0F1 1F1 1I1 1W1 1REDUCE 0B1 0REDUCE 0STEP 1STEP",
    ]


def test_all_workers_list_their_reductions_in_one_order() -> None:
    # F = I = W = R = 1, B = 2. Worker 0 is done with stage 0 at 5 and with stage 1 at 6, worker 1
    # at 7 and 4. So stage 1 is ready at 6 and goes first, also on worker 0.
    world = insert_step(schedule("0F0 1F0 1I0 0B0 1W0", "0F1 1F1 1B1 0R1 0I1 0W1"))
    assert rows(world) == [
        "0F0 1F0 1I0 0B0 1W0 1REDUCE 0REDUCE 0STEP 1STEP",
        "0F1 1F1 1B1 1REDUCE 0R1 0I1 0W1 0REDUCE 0STEP 1STEP",
    ]
    assert violations(world) == []


def test_of_reductions_ready_together_the_lower_stage_goes_first() -> None:
    # Both stages are ready at 6: stage 0 on worker 1, stage 1 on worker 0.
    world = insert_step(schedule("0F0 1F0 1I0 0B0 1W0", "0F1 1F1 1B1 0B1"))
    assert rows(world) == [
        "0F0 1F0 1I0 0B0 0REDUCE 1W0 1REDUCE 0STEP 1STEP",
        "0F1 1F1 1B1 0B1 0REDUCE 1REDUCE 0STEP 1STEP",
    ]


def test_clipping_exchanges_the_norm_once_per_worker() -> None:
    world = insert_step(schedule("1F0 1B0 1F1 1B1", "0F0 0B0 0F1 0B1", ""), clip=True)
    assert rows(world) == [
        "1F0 1B0 1F1 1B1 1NORM 1STEP",
        "0F0 0B0 0F1 0B1 0NORM 0STEP",
        "",
    ]


def test_tied_stages_are_reduced_once_more_on_all_their_workers() -> None:
    world = insert_step(
        schedule("0F0 2F0 2B0 0B0", "1F0 1B0 1F1 1B1", "0F1 2F1 2B1 0B1", num_stages=3),
        tied=[(0, 2)],
    )
    assert rows(world)[0] == "0F0 2F0 2B0 2REDUCE 0B0 0REDUCE 0REDUCE>2 0STEP 2STEP"
    assert rows(world)[1] == "1F0 1B0 1F1 1B1 1STEP"


def test_tied_stages_of_one_worker_need_no_reduction() -> None:
    world = insert_step(schedule("0F0 1F0 1B0 0B0", num_microbatches=1), tied=[(0, 1)])
    assert rows(world) == ["0F0 1F0 1B0 0B0 0STEP 1STEP"]


def test_what_cannot_be_stepped_is_refused() -> None:
    with pytest.raises(ScheduleError) as caught:
        insert_step(schedule("0F0 0B0 0STEP 1F0"), tied=[(1, 0), (0, 2), (0, 1)])
    assert str(caught.value) == (
        "schedule test cannot be given an optimizer step\n"
        "  tied stages 1 and 0: write the lower one first, both in 0..1\n"
        "  tied stages 0 and 2: write the lower one first, both in 0..1\n"
        "  stage 1 has no backward, so there is nothing to step with\n"
        "  REDUCE, NORM or STEP is there already: pass the schedule without them"
    )


def test_lowering_does_all_of_it() -> None:
    world = lower(schedule("0F0 0B0", "1F0 1B0 1F1 1B1", "0F1 0B1"), tied=[(0, 1)], clip=True)
    assert rows(world) == [
        "0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE 0REDUCE>1 0NORM 0STEP",
        "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1 0REDUCE>1 1NORM 1STEP",
        "0F1 0SEND_F1 0RECV_B1 0B1 0REDUCE 0REDUCE>1 0NORM 0STEP",
    ]
    assert violations(world) == []
