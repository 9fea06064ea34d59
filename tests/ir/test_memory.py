"""Memory follows from the order of the lists alone."""

from evener.ir.memory import Effect, MemoryTable, memory_steps, peak_bytes, peak_in_flight
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action, parse_schedule

# Stage 0 takes 1, 10, 100, ... and stage 1 twice as much.
TABLE = MemoryTable(
    {
        Resource.ACTIVATION: (1, 2),
        Resource.CHECKPOINT: (10, 20),
        Resource.WEIGHT_GRADIENT: (100, 200),
        Resource.INPUT: (1_000, 2_000),
        Resource.OUTPUT_GRADIENT: (10_000, 20_000),
        Resource.OFFLOADED: (100_000, 200_000),
    },
    static_bytes=(0, 0),
)


def schedule(*rows: str) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Schedule("test", 2, 4, workers)


def curve(row: str) -> list[tuple[int, int]]:
    """What worker 0 holds in the middle and at the end of every action."""
    held = 0
    points = []
    for step in memory_steps(schedule(row)):
        held += sum(map(TABLE.effect_bytes, step.at_start))
        middle = held
        held += sum(map(TABLE.effect_bytes, step.at_end))
        points.append((middle, held))
    return points


def test_a_forward_holds_its_activation_until_the_backward_has_ended() -> None:
    assert curve("0F0 0F1 0B0 0B1") == [(1, 1), (2, 2), (2, 1), (1, 0)]


def test_an_input_gradient_leaves_something_behind_for_the_weight_gradient() -> None:
    assert curve("0F0 0I0 0W0") == [(1, 1), (1, 100), (100, 0)]


def test_a_recomputed_forward_keeps_a_checkpoint() -> None:
    # R takes the activation (1) at its start and gives the checkpoint (10) back at its end.
    assert curve("0F0 0R0 0B0") == [(10, 10), (11, 1), (1, 0)]


def test_receive_buffers_are_held_until_they_are_read() -> None:
    # The input (2000) goes when the forward starts, the gradient (20000) when the backward ends.
    assert curve("1RECV_F0 1F0 1RECV_B0 1B0") == [
        (2_000, 2_000),
        (2, 2),
        (20_002, 20_002),
        (20_002, 0),
    ]


def test_two_inputs_of_one_forward_are_both_given_back() -> None:
    assert curve("1RECV_F0>0 1RECV_F0>1 1F0 1B0")[1:3] == [(4_000, 4_000), (2, 2)]


def test_evaluation_keeps_nothing() -> None:
    assert curve("0F0 0F1") == [(1, 0), (1, 0)]


def test_offloaded_activations_come_back() -> None:
    # The copy (OFFLOAD) gives nothing back, whoever waits for it (FREE) does: 100,000 of the cell.
    assert curve("0F0 0OFFLOAD0 0F1 0FREE0 0RELOAD0 0B0 0B1") == [
        (1, 1),
        (1, 1),
        (2, 2),
        (2, 2 - 100_000),
        (2, 2),
        (2, 1),
        (1, 0),
    ]


def test_a_recomputed_forward_offloads_its_checkpoint() -> None:
    # F takes the checkpoint (10), FREE gives it back, RELOAD takes it again for R.
    assert curve("0F0 0OFFLOAD0 0FREE0 0RELOAD0 0R0 0B0") == [
        (10, 10),
        (10, 10),
        (10, 0),
        (10, 10),
        (11, 1),
        (1, 0),
    ]


def test_gathered_parameters_are_held_until_the_release() -> None:
    steps = memory_steps(schedule("0GATHER 0F0 0RELEASE"))
    assert steps[0].at_start == (Effect(0, Resource.PARAMETERS, 1),)
    assert steps[2].at_end == (Effect(0, Resource.PARAMETERS, -1),)
    # The table has no size for parameters, so they take nothing.
    assert curve("0GATHER 0RELEASE") == [(0, 0), (0, 0)]


def test_peaks_are_per_worker_and_start_from_what_is_static() -> None:
    world = schedule("0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1I0 1F1 1I1 1W0 1W1", "")
    table = MemoryTable(TABLE.per_stage, static_bytes=(5, 7, 9))
    # Worker 0: 5 + 3 x 1. Worker 1, during I1: 7 + one activation of 2 + 200 of I0; then
    # 7 + 2 x 200 at its end, which is more. Worker 2 is idle.
    assert peak_bytes(world, table) == (8, 407, 9)


def test_in_flight_counts_from_forward_to_the_last_backward_action() -> None:
    # Worker 1 holds (1, 0) until W0 and (1, 1) from F1 on: two at once.
    world = schedule("0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1I0 1F1 1W0 1B1", "", "1F3 1F2 0X:side0")
    assert peak_in_flight(world) == (3, 2, 0, 1)


def test_slices_may_differ_in_size() -> None:
    # Forwards in order hold 5 and 5 + 7; stage 0 has no sizes per slice for what I leaves (100).
    text = (
        "# schedule cut\n# stages 1\n# microbatches 1\n# slices 2\n0F0.0 0F0.1 0I0.1 0W0.1 0B0.0\n"
    )
    sizes = {Resource.ACTIVATION: ((5, 7),)}
    table = MemoryTable(TABLE.per_stage, static_bytes=(0,), per_slice=sizes)
    steps = memory_steps(parse_schedule(text))
    starts = [sum(map(table.effect_bytes, step.at_start)) for step in steps]
    ends = [sum(map(table.effect_bytes, step.at_end)) for step in steps]
    assert starts == [5, 7, 0, 0, 0]
    assert ends == [0, 0, 100 - 7, -100, -5]
    assert table.size_bytes(Resource.ACTIVATION, 0) == 1
