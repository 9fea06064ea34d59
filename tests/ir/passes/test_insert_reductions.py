"""Where REDUCE, NORM and SHARE stand in a schedule that has placed its STEPs, by hand."""

from evener.ir.check import violations
from evener.ir.dependencies import resolve
from evener.ir.passes import first_updates, lower, replicate, without_steps
from evener.ir.schedule import Schedule, Updates
from evener.ir.text import parse_action


def schedule(*rows: str, num_stages: int = 1, num_microbatches: int = 4) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Schedule("test", num_stages, num_microbatches, workers, updates=Updates(2, 1))


def rows(world: Schedule) -> list[str]:
    return [" ".join(map(str, actions)) for actions in world.workers]


# Two workers hold the only stage; update 0 is microbatches 0 and 1.
TWO = schedule("0F0 0B0 0F2 0STEP0 0B2 0STEP1", "0F1 0B1 0F3 0STEP0 0B3 0STEP1")
BOTH_ENDS = schedule(
    "0F0 1F1 1B1 0B0 0STEP0 1STEP0 0F2 1F3 1B3 0B2 0STEP1 1STEP1",
    "0F1 1F0 1B0 0B1 0STEP0 1STEP0 0F3 1F2 1B2 0B3 0STEP1 1STEP1",
    num_stages=2,
)


def test_the_first_worker_steps_and_the_others_take_its_weights_over() -> None:
    # F = 1, B = 2, so both are ready at 3; the first STEP ends at 5, when worker 1 can be sent it.
    world = lower(TWO)
    assert rows(world) == [
        "0F0 0B0 0REDUCE0 0F2 0STEP0 0SHARE0 0B2 0REDUCE1 0STEP1 0SHARE1",
        "0F1 0B1 0REDUCE0 0F3 0SHARE0 0STEP0 0B3 0REDUCE1 0SHARE1 0STEP1",
    ]
    assert violations(world) == []
    found = resolve(world)
    names = list(map(str, found.actions))
    owner, other = names.index("0STEP0"), 10 + names[10:].index("0STEP0")
    assert [names[need] for need in found.needs[owner]] == ["0REDUCE0"]
    assert [names[need] for need in found.needs[other]] == ["0REDUCE0", "0SHARE0"]


def test_before_that_a_step_waits_for_the_gradients_of_all_holders() -> None:
    assert violations(TWO) == []
    found = resolve(TWO)
    needs = {(found.worker_of[i], str(found.actions[i])): found.needs[i] for i in range(12)}
    # Worker 0 waits for 0B1 (position 7) of worker 1, and worker 1 for the STEP of worker 0 (3).
    assert needs[0, "0STEP0"] == (7,)
    assert needs[1, "0STEP0"] == (3,)


def test_clipping_waits_in_every_update() -> None:
    world = lower(TWO, clip=True)
    assert rows(world) == [
        "0F0 0B0 0REDUCE0 0NORM0 0F2 0STEP0 0SHARE0 0B2 0REDUCE1 0NORM1 0STEP1 0SHARE1",
        "0F1 0B1 0REDUCE0 0NORM0 0F3 0SHARE0 0STEP0 0B3 0REDUCE1 0NORM1 0SHARE1 0STEP1",
    ]
    assert violations(world) == []


def test_tied_stages_are_reduced_once_more_in_every_update() -> None:
    world = lower(BOTH_ENDS, tied=[(0, 1)], clip=True)
    assert violations(world) == []
    for actions in world.workers:
        names = [str(action) for action in actions]
        for update in (0, 1):
            order = [f"0REDUCE{update}", f"0REDUCE{update}>1", f"0STEP{update}"]
            assert sorted(order, key=names.index) == order


def test_whoever_holds_a_stage_alone_shares_nothing() -> None:
    one = schedule("0F0 0B0 0F1 0B1 0STEP0 0F2 0B2 0F3 0B3 0STEP1")
    assert rows(lower(one)) == rows(one)


def test_replicas_keep_their_microbatches_in_the_update() -> None:
    one = schedule("0F0 0B0 0F1 0STEP0 0B1 0STEP1", num_microbatches=2)
    world = replicate(one, 3)
    assert rows(world) == [
        f"0F{r} 0B{r} 0F{3 + r} 0STEP0 0B{3 + r} 0STEP1" for r in range(3)
    ]  # fmt: skip
    assert (world.num_microbatches, world.update_size) == (6, 3)
    assert violations(lower(world)) == []


def test_a_run_may_end_after_any_update() -> None:
    first = first_updates(TWO, 1)
    assert rows(first) == ["0F0 0B0 0STEP", "0F1 0B1 0STEP"]
    assert (first.num_microbatches, first.updates) == (2, Updates(1))
    assert rows(lower(first)) == [
        "0F0 0B0 0REDUCE 0STEP 0SHARE",
        "0F1 0B1 0REDUCE 0SHARE 0STEP",
    ]
    assert violations(lower(first)) == []
    assert first_updates(TWO, 2) is TWO


def test_gradients_can_be_kept_for_later() -> None:
    assert rows(without_steps(TWO)) == ["0F0 0B0", "0F1 0B1"]
    assert without_steps(TWO).updates == Updates()
    ordinary = Schedule("test", 1, 1, TWO.workers)
    assert without_steps(ordinary) is ordinary
