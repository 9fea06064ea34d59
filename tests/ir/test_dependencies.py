"""What waits for what, found from the table of rules."""

from evener.ir.dependencies import _Resolver, resolve
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import SCHEDULES, ScheduleShape


def schedule(*rows: str, num_stages: int = 2, edges: str = "", num_slices: int = 1) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    pairs = tuple((int(word[0]), int(word[2])) for word in edges.split()) or None
    return Schedule("test", num_stages, 9, workers, num_slices=num_slices, edges=pairs)


def needs(world: Schedule) -> dict[str, list[str]]:
    """Of every action that waits for something, what. Equal texts of two workers share a key."""
    found = resolve(world)
    assert found.missing == []
    texts: dict[str, list[str]] = {}
    for action, waits in zip(found.actions, found.needs, strict=True):
        if waits:
            texts.setdefault(str(action), []).extend(str(found.actions[i]) for i in waits)
    return texts


def missing(world: Schedule) -> list[str]:
    return [gap.text for gap in resolve(world).missing]


def test_compute_only_waits_for_the_producer_on_the_other_worker() -> None:
    assert needs(schedule("0F0 0B0", "1F0 1B0")) == {"1F0": ["0F0"], "0B0": ["1B0"]}


def test_what_list_order_says_is_left_out() -> None:
    assert needs(schedule("0F0 1F0 1R0 1I0 0B0 1W0")) == {}


def test_lowered_waits_for_the_receive_and_the_receive_for_the_send() -> None:
    world = schedule("0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1I0 1SEND_B0 1W0")
    assert needs(world) == {
        "0SEND_F0": ["0F0"],
        "1RECV_F0": ["0SEND_F0"],
        "1F0": ["1RECV_F0"],
        "1SEND_B0": ["1I0"],
        "0RECV_B0": ["1SEND_B0"],
        "0B0": ["0RECV_B0"],
    }
    # Flat order: 0F0 0SEND_F0 0RECV_B0 0B0 | 1RECV_F0 1F0 1I0 1SEND_B0 1W0.
    assert resolve(world).match == [-1, 4, 7, -1, 1, -1, -1, 2, -1]


def test_a_stage_with_several_neighbours_waits_for_all() -> None:
    # 0 feeds 1 and 2; 3 is fed by both.
    world = schedule(
        "0F0 0SEND_F0>2 1F0 1SEND_F0 1RECV_B0 1B0 0RECV_B0>2 0B0",
        "2RECV_F0 2F0 3RECV_F0>1 3F0 3B0 3SEND_B0>1 2B0 2SEND_B0",
        num_stages=4,
        edges="0>1 0>2 1>3 2>3",
    )
    assert needs(world) == {
        "0SEND_F0>2": ["0F0"],
        "2RECV_F0": ["0SEND_F0>2"],
        "2F0": ["2RECV_F0"],
        "1SEND_F0": ["1F0"],
        "3RECV_F0>1": ["1SEND_F0"],
        "3F0": ["3RECV_F0>1"],
        "3SEND_B0>1": ["3B0"],
        "1RECV_B0": ["3SEND_B0>1"],
        "1B0": ["1RECV_B0"],
        "2SEND_B0": ["2B0"],
        "0RECV_B0>2": ["2SEND_B0"],
        "0B0": ["0RECV_B0>2"],
    }


def test_slices_run_forward_in_order_and_backward_against_it() -> None:
    def world(row: str) -> Schedule:
        return schedule(row, num_stages=1, num_slices=2)

    assert missing(world("0F0.0 0F0.1 0B0.1 0B0.0")) == []
    assert missing(world("0F0.1 0F0.0 0B0.0 0B0.1")) == [
        "worker 0: 0F0.1 stands before 0F0.0, which it needs: move it behind",
        "worker 0: 0B0.0 stands before 0B0.1, which it needs: move it behind",
    ]
    assert missing(world("0F0 0B0")) == []


def test_reductions_wait_for_the_last_gradient_and_steps_for_all_of_them() -> None:
    world = schedule(
        "0F0 0F1 0B0 0I1 0W1 0REDUCE 0REDUCE>1 0NORM 0STEP",
        "1F0 1F1 1B0 1B1 1REDUCE 0REDUCE>1 1NORM 1STEP",
        "1F2 1B2 1REDUCE 0REDUCE>1 1NORM 1STEP 0F2 0B2",
    )
    found = resolve(world)
    names = [[str(found.actions[i]) for i in waits] for waits in found.needs]
    assert names[5:9] == [
        ["0W1"],
        ["0W1"],
        ["0W1", "0REDUCE", "0REDUCE>1"],
        ["0REDUCE", "0REDUCE>1", "0NORM"],
    ]
    groups = [[found.worker_of[i] for i in group] for group in found.collectives]
    assert groups == [[0], [0, 1, 2], [0, 1, 2], [1, 2]]


def test_parameters_gathered_again_are_waited_for_again() -> None:
    world = schedule("0GATHER 0F0 0RELEASE 0GATHER 0B0 0RELEASE", num_stages=1)
    found = resolve(world)
    assert found.needs == [(), (0,), (), (), (3,), ()]
    assert found.collectives == [(0,), (3,), (2,), (5,)]
    late = schedule("0F0 0GATHER 0B0", "0GATHER", "0F1", num_stages=1)
    assert missing(late) == ["worker 0: 0F0 stands before 0GATHER, which it needs: move it behind"]


def test_offloaded_activations_are_waited_for() -> None:
    assert needs(schedule("0F0 0OFFLOAD0 0FREE0 0RELOAD0 0B0", num_stages=1)) == {
        "0OFFLOAD0": ["0F0"],
        "0FREE0": ["0OFFLOAD0"],
        "0RELOAD0": ["0FREE0"],
        "0B0": ["0RELOAD0"],
    }


def test_side_work_waits_for_nothing() -> None:
    assert needs(schedule("0X:factor0 0F0 0X:factor1", num_stages=1)) == {}


def test_every_gap_is_named() -> None:
    world = schedule(
        "0F0 0F1 0SEND_F1 0B0 0STEP 1NORM 5F0",
        "1F0 1B0 1W1 1SEND_F0 0B1 1REDUCE",
        "1RECV_F3 0REDUCE",
        "1F7 5SEND_F7",
    )
    assert missing(world) == [
        "worker 0: 5F0: stages are 0 to 1",
        "worker 3: 5SEND_F7: stages are 0 to 1",
        "worker 0: 0SEND_F1 has no partner: drop it, or add the other end once",
        "worker 1: 1SEND_F0 has no partner: drop it, or add the other end once",
        "worker 2: 1RECV_F3 has no partner: drop it, or add the other end once",
        "worker 3: 5SEND_F7 has no partner: drop it, or add the other end once",
        "worker 0: 0B0 needs 1B0 of worker 1, but does not receive it: add the messages",
        "worker 0: 0STEP stands before 1NORM, which it needs: move it behind",
        "worker 1: 1F0 needs 0F0 of worker 0, but does not receive it: add the messages",
        "worker 1: 1W1 needs 1I1, which no worker runs: add it",
        "worker 1: 0B1 needs 0F1, which worker 0 runs: give both to one worker",
        "worker 1: 0B1 needs 1B1 or 1I1, which no worker runs: add it",
        "worker 2: 0REDUCE needs B or W of its stage, but the worker runs none",
        "worker 3: 1F7 needs 0F7, which no worker runs: add it",
        "worker 3: 5SEND_F7 needs 5F7, which no worker runs: add it",
    ]


class Counted(list):
    """A list that counts how often one of its entries is looked at."""

    looks = 0

    def __getitem__(self, index):
        Counted.looks += 1
        return super().__getitem__(index)


def looks_at_actions(num_updates: int) -> int:
    """While the needs of two workers with that many updates are found."""
    resolver = _Resolver(lower(SCHEDULES["amdp_2"](ScheduleShape(2, 4, num_updates=num_updates))))
    resolver.actions = Counted(resolver.actions)
    Counted.looks = 0
    resolver.run()
    return Counted.looks


def test_the_needs_of_twice_as_many_updates_take_twice_as_long() -> None:
    # The ends of the list differ; a search through all updates for each would make it four times.
    assert looks_at_actions(64) <= 2.2 * looks_at_actions(32)
