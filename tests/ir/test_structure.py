"""Ranges, coverage and membership: each thing that can be wrong, and the sentence that says so."""

import pytest

from evener.ir.action import Action, Kind
from evener.ir.check import violations
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action


def actions(*rows: str) -> tuple[tuple[Action, ...], ...]:
    return tuple(tuple(map(parse_action, row.split())) for row in rows)


def chain(*rows: str, num_stages: int = 1, num_microbatches: int = 1) -> list[str]:
    return violations(Schedule("test", num_stages, num_microbatches, actions(*rows)))


def test_sizes_are_at_least_one() -> None:
    assert violations(Schedule("test", 0, -1, (), num_slices=0)) == [
        "0 stages: there must be at least 1",
        "-1 microbatches: there must be at least 1",
        "0 slices: there must be at least 1",
        "0 workers: there must be at least 1",
    ]


def test_edges_are_in_range_single_and_without_circle() -> None:
    edges = ((0, 1), (0, 1), (1, 5), (2, 3), (3, 2), (3, 4), (1, 2))
    assert violations(Schedule("test", 5, 1, actions("0F0"), edges=edges)) == [
        "edge 1>5: stages are 0 to 4",
        "edge 0>1 is there 2 times: keep one",
        "the edges of stages 2, 3 run in a circle: the stage graph must have none",
    ]
    assert violations(Schedule("test", 2, 1, actions("0F0"), edges=((1, 1),))) == [
        "the edges of stages 1 run in a circle: the stage graph must have none"
    ]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action(2, Kind.F, 0), "2F0: stages are 0 to 1"),
        (Action(-1, Kind.SEND_F, 0), "-1SEND_F0: stages are 0 to 1"),
        (Action(0, Kind.F, 1), "0F1: microbatches are 0 to 0"),
        (Action(0, Kind.X, -1, name="y"), "0X:y-1: microbatches are 0 to 0"),
        (Action(0, Kind.F), "0F: F needs a microbatch"),
        (Action(0, Kind.STEP, 0), "0STEP0: STEP acts on a whole stage: write no microbatch"),
        (Action(0, Kind.NORM, slice=1), "0NORM.1: NORM acts on a whole stage: write no microbatch"),
        (Action(0, Kind.F, 0, 0), "0F0.0: microbatches are not cut into slices: write none"),
        (Action(0, Kind.X), "0X: X needs a name, and nothing else has one"),
        (Action(0, Kind.F, 0, name="y"), "0F:y0: X needs a name, and nothing else has one"),
        (Action(0, Kind.F, 0, peer=1), "0F0>1: only messages and REDUCE name another stage"),
        (
            Action(1, Kind.REDUCE, peer=0),
            "1REDUCE>0: write the lower stage first, both in 0..1",
        ),
        (
            Action(0, Kind.SEND_F, 0, peer=0),
            "0SEND_F0>0: the other stage must be a neighbour in that direction (1)",
        ),
        (
            Action(0, Kind.RECV_F, 0),
            "0RECV_F0: the other stage must be a neighbour in that direction (none)",
        ),
    ],
)
def test_indices_are_in_range(action: Action, text: str) -> None:
    assert violations(Schedule("test", 2, 1, ((action,),))) == [f"worker 0: {text}"]


def test_slices_are_written_and_in_range() -> None:
    world = Schedule("test", 1, 1, actions("0F0.0 0F0 0F0.2 0X:y0 0REDUCE"), num_slices=2)
    assert violations(world) == [
        "worker 0: 0F0: microbatches are cut into 2 slices: write one",
        "worker 0: 0F0.2: slices are 0 to 1",
    ]


def test_sliced_and_branched_schedules_are_covered_too() -> None:
    rows = actions("0F0.0 0F0.1 1F0.0 1F0.1 2F0.0 2F0.1 2B0.1 1B0.1 0I0.1 2B0.0 1B0.0 0B0.0")
    world = Schedule("test", 3, 1, rows, num_slices=2, edges=((0, 1), (0, 2)))
    assert violations(world) == [
        "0W0.1 is missing: I and W make a backward only together",
    ]


def test_every_cell_is_covered_once() -> None:
    texts = chain(
        "0F0 0F0 0F1 0B0 0I1 0B1 0F2 0W2 0F3 0I3 0F4 0B5",
        "0F0 0R0 0R0",
        num_microbatches=6,
    )
    assert texts == [
        "0F0 is listed 3 times (workers 0, 0, 1): keep one",
        "0R0 is listed 2 times (workers 1, 1): keep one",
        "0B1 stands beside 0I1: write B alone, or I and W",
        "0I2 is missing: I and W make a backward only together",
        "0W3 is missing: I and W make a backward only together",
        "0B4 is missing: the forward has no backward (B, or I and W)",
        "0F5 is missing: every stage runs every microbatch once",
    ]


def test_one_worker_runs_all_of_a_cell() -> None:
    assert chain("0F0 0I0", "0W0") == [
        "worker 1: 0W0 needs 0I0, which worker 0 runs: give both to one worker"
    ]


def test_offloaded_activations_come_back() -> None:
    assert chain("0F0 0OFFLOAD0 0B0") == [
        "worker 0: 0OFFLOAD0 gives no memory back: add a FREE",
        "worker 0: 0OFFLOAD0 never comes back: add a RELOAD",
    ]
    assert chain("0F0 0OFFLOAD0 0FREE0 0RELOAD0 0B0") == []


def test_messages_run_between_workers() -> None:
    rows = (
        "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 1RECV_F1 1F1 1B1 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0",
    )
    assert chain(*rows, num_stages=2, num_microbatches=2) == [
        "worker 0: 0SEND_F1 is superfluous: one worker runs both stages 0 and 1 of the microbatch",
        "worker 0: 1RECV_F1 is superfluous: one worker runs both stages 0 and 1 of the microbatch",
    ]


def test_messages_are_single_and_at_home() -> None:
    texts = chain(
        "0F0 0SEND_F0 0SEND_F0 1RECV_F0 0RECV_B0 0B0",
        "1F0 1B0 1SEND_B0",
        num_stages=2,
    )
    assert texts == [
        "worker 0: 0SEND_F0 has no partner: drop it, or add the other end once",
        "worker 1: 1F0 needs 0F0 of worker 0, but does not receive it: add the messages",
    ]


def test_collectives_are_listed_by_their_members() -> None:
    texts = chain(
        "0F0 1F0 1B0 0B0 0REDUCE 0REDUCE 0REDUCE>1 0NORM",
        "0F1 1F1 1B1 0B1 0REDUCE>1 0NORM",
        "2F0 2B0 2F1 2B1 0REDUCE>1",
        "0REDUCE",
        num_stages=3,
        num_microbatches=2,
    )
    assert texts == [
        "worker 0: 0REDUCE is listed 2 times: keep one",
        "worker 1: 0REDUCE is missing: all members list it (0, 1)",
        "worker 3: 0REDUCE is listed, but the worker is not a member: drop it",
        "worker 2: 0REDUCE>1 is listed, but the worker is not a member: drop it",
        "worker 2: NORM is missing: all members list it (0, 1, 2)",
    ]


def test_whoever_steps_steps_all_of_its_stages_with_reduced_gradients() -> None:
    texts = chain(
        "0F0 1F0 1B0 0B0 0STEP 0STEP",
        "0F1 1F1 1B1 0B1 1REDUCE 0STEP 1STEP 2STEP",
        "2F0 2B0 2F1 2B1 2STEP",
        num_stages=3,
        num_microbatches=2,
    )
    assert texts == [
        "worker 0: 1REDUCE is missing: all members list it (0, 1)",
        "worker 0: 0STEP is listed 2 times: once is right",
        "worker 0: 1STEP is listed 0 times: once is right",
        "worker 1: 2STEP is listed, but the worker does not hold the stage",
        "workers 0, 1 hold stage 0, but its gradients are not added up: add 0REDUCE on each",
    ]


def test_tied_parameters_are_reduced_over_both_stages() -> None:
    rows = ("0F0 0B0 0REDUCE>1 0STEP", "1F0 1B0 0REDUCE>1 1STEP")
    assert chain(*rows, num_stages=2) == []


def test_a_sum_of_tied_parameters_does_not_add_up_the_others() -> None:
    rows = (
        "0F0 1F0 1B0 0B0 0REDUCE>1 {} 0STEP 1STEP",
        "0F1 1F1 1B1 0B1 0REDUCE>1 {} 0STEP 1STEP",
    )

    def with_sums(sums: str) -> list[str]:
        return chain(*(row.format(sums) for row in rows), num_stages=2, num_microbatches=2)

    assert with_sums("0REDUCE 1REDUCE") == []
    assert with_sums("1REDUCE") == [
        "workers 0, 1 hold stage 0, but its gradients are not added up: add 0REDUCE on each"
    ]
    assert with_sums("0REDUCE") == [
        "workers 0, 1 hold stage 1, but its gradients are not added up: add 1REDUCE on each"
    ]


def test_gathered_parameters_are_there_when_used() -> None:
    assert chain("0GATHER 0F0 0RELEASE 0GATHER 0B0 0RELEASE 1F0 1B0", num_stages=2) != []
    assert chain("0GATHER 0F0 1F0 1B0 0RELEASE 0GATHER 0B0 0RELEASE", num_stages=2) == []
    assert chain("0RELEASE 0GATHER 0GATHER 0F0 0RELEASE 0B0 0F1 0B1", num_microbatches=2) == [
        "worker 0: 0RELEASE comes without a GATHER before it",
        "worker 0: 0GATHER comes twice without a RELEASE between",
        "worker 0: 0B0 uses parameters that are not gathered",
        "worker 0: 0F1 uses parameters that are not gathered",
        "worker 0: 0B1 uses parameters that are not gathered",
    ]


def test_all_members_gather_equally_often() -> None:
    rows = ("0GATHER 0F0 0B0 0RELEASE", "0GATHER 0F1 0RELEASE 0GATHER 0B1")
    assert chain(*rows, num_microbatches=2) == [
        "0GATHER is listed by some members more often than by others"
    ]


def test_side_work_may_stand_anywhere() -> None:
    assert chain("0X:one 0F0 0X:two0 0B0 0X:one") == []
