"""Prediction = execution: emulated runs in real processes against the simulator."""

from array import array
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from evener.cost.table import KIND_INDEX, CostTable, SliceCosts
from evener.errors import ExecutionError, UsageError
from evener.executor.emulate import StandIn, emulate, measured_costs
from evener.ir.action import Action, Kind
from evener.ir.passes import insert_offload, lower, offloadable, replicate, spread_head
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.ir.timeline import Timeline
from evener.planner.freezing.plan_freezing import plan_freezing
from evener.planner.pipe_fisher import KfacCosts, pipe_fisher
from evener.schedules import SCHEDULES, ScheduleShape, gpipe, one_f_one_b
from evener.sim import simulate

pytestmark = pytest.mark.dist

MS = 1_000_000


def unequal_costs(schedule: Schedule, seed: int, *, latency_ns: int, unit_ns: int) -> CostTable:
    """Random times between one and two units of compute, messages of up to half a unit."""
    random = np.random.default_rng(seed)
    num_workers, num_stages = schedule.num_workers, schedule.num_stages
    table = CostTable.uniform(num_workers, num_stages)
    return replace(
        table,
        time_ns=random.integers(unit_ns, 2 * unit_ns, size=table.time_ns.shape),
        forward_bytes=random.integers(unit_ns // 4, unit_ns // 2, size=num_stages),
        backward_bytes=random.integers(unit_ns // 4, unit_ns // 2, size=num_stages),
        latency_ns=np.full((num_workers, num_workers), latency_ns),
        bytes_per_s=np.full((num_workers, num_workers), 1_000_000_000),  # one byte per ns
    )


def assert_equal_times(played: Timeline, predicted: Timeline) -> None:
    assert played.start_ns == predicted.start_ns
    assert played.end_ns == predicted.end_ns


def compute_order(timeline: Timeline) -> list[list[Action]]:
    """Per worker, its compute actions in the order of their start."""
    workers = []
    for worker in range(timeline.schedule.num_workers):
        spans = [span for span in timeline.spans(worker) if span.action.kind in _ON_WORKER]
        workers.append([span.action for span in sorted(spans, key=lambda span: span.start_ns)])
    return workers


_ON_WORKER = {Kind.F, Kind.B, Kind.I, Kind.W, Kind.STEP}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("one_f_one_b", ScheduleShape(4, 8)),
        ("sppo", ScheduleShape(8, 1, num_slices=8)),
    ],
)
def test_virtual_times_of_copies_to_the_host_equal_the_simulation(
    name: str, shape: ScheduleShape
) -> None:
    # Copies take one to two units, like all else: some workers wait for them and some do not.
    plain = SCHEDULES[name](shape)
    schedule = lower(insert_offload(plain, offloadable(plain)))
    costs = unequal_costs(schedule, shape.num_workers, latency_ns=0, unit_ns=MS)
    (played,) = emulate(schedule, costs)
    assert_equal_times(played, simulate(schedule, costs))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("slimpipe", ScheduleShape(4, 2, num_slices=4)),
        ("slimpipe", ScheduleShape(8, 1, num_slices=8)),
        ("one_f_one_b", ScheduleShape(4, 8)),
    ],
)
def test_virtual_times_of_a_spread_head_equal_the_simulation(
    name: str, shape: ScheduleShape
) -> None:
    schedule = lower(spread_head(SCHEDULES[name](shape)), clip=True)
    costs = unequal_costs(schedule, shape.num_workers, latency_ns=MS, unit_ns=MS)
    (played,) = emulate(schedule, costs)
    assert_equal_times(played, simulate(schedule, costs))


def test_replicas_of_one_worker_send_nothing() -> None:
    schedule = lower(replicate(SCHEDULES["gpipe"](ScheduleShape(1, 2)), 2))
    assert not schedule.is_lowered
    costs = unequal_costs(schedule, 0, latency_ns=0, unit_ns=MS)
    (played,) = emulate(schedule, costs)
    assert_equal_times(played, simulate(schedule, costs))


@pytest.mark.parametrize("latency_ns", [0, 5 * MS])
@pytest.mark.parametrize("num_workers", [2, 4])
@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "interleaved_one_f_one_b", "zb_h1"])
def test_virtual_times_equal_the_simulation(name: str, num_workers: int, latency_ns: int) -> None:
    chunks = 2 if name.startswith("interleaved") else 1
    shape = ScheduleShape(num_workers, 2 * num_workers, chunks)
    schedule = lower(SCHEDULES[name].generator(shape), clip=True)
    costs = unequal_costs(schedule, num_workers, latency_ns=latency_ns, unit_ns=MS)
    first, second = emulate(schedule, costs, steps=2)
    predicted = simulate(schedule, costs)
    assert_equal_times(first, predicted)
    assert_equal_times(second, predicted)
    assert first.source == "virtual clock"
    assert compute_order(first) == [
        [action for action in actions if action.kind in _ON_WORKER] for actions in schedule.workers
    ]


def test_virtual_times_of_braids() -> None:
    schedule = lower(SCHEDULES["stp"].generator(ScheduleShape(2, 6, 2)), clip=True)
    costs = unequal_costs(schedule, 2, latency_ns=5 * MS, unit_ns=MS)
    costs = replace(costs, all_reduce_ns=costs.time_ns // 4)
    (played,) = emulate(schedule, costs)
    assert_equal_times(played, simulate(schedule, costs))


def unequal_slices(schedule: Schedule, seed: int) -> CostTable:
    """As ``unequal_costs``, and each slice with times and messages of its own."""
    random = np.random.default_rng(seed)
    costs = unequal_costs(schedule, seed, latency_ns=MS // 10, unit_ns=MS)
    equal = SliceCosts.equal(costs, schedule.num_slices)
    slices = SliceCosts(
        time_ns=random.integers(MS, 2 * MS, size=equal.time_ns.shape),
        forward_bytes=random.integers(MS // 4, MS // 2, size=equal.forward_bytes.shape),
        backward_bytes=random.integers(MS // 4, MS // 2, size=equal.backward_bytes.shape),
    )
    return replace(costs, slices=slices)


@pytest.mark.parametrize("num_workers", [4, 8])
@pytest.mark.parametrize("name", [name for name, each in SCHEDULES.items() if each.slicer])
def test_virtual_times_of_slices_equal_the_simulation(name: str, num_workers: int) -> None:
    chunks = 2 if name.endswith("interleaved") else 1
    shape = ScheduleShape(num_workers, 3, chunks, num_slices=3)
    schedule = lower(SCHEDULES[name].generator(shape), clip=True)
    costs = unequal_slices(schedule, num_workers)
    (played,) = emulate(schedule, costs)
    assert_equal_times(played, simulate(schedule, costs))


@pytest.mark.parametrize(
    ("name", "num_workers"), [("one_f_one_b", 4), ("zb_h1", 4), ("one_f_one_b", 8)]
)
def test_virtual_times_with_frozen_parameters(name: str, num_workers: int) -> None:
    schedule = lower(SCHEDULES[name].generator(ScheduleShape(num_workers, 2 * num_workers)))
    costs = unequal_costs(schedule, num_workers, latency_ns=MS, unit_ns=MS)
    frozen = plan_freezing(schedule, costs, max_share_ppm=400_000)
    predicted = simulate(schedule, frozen.costs)
    (played,) = emulate(schedule, frozen.costs)
    assert_equal_times(played, predicted)
    assert predicted.step_ns < simulate(schedule, costs).step_ns


@pytest.mark.parametrize(
    ("name", "num_workers"), [("gpipe", 4), ("chimera", 4), ("one_f_one_b", 8), ("chimera", 8)]
)
def test_virtual_times_with_side_work_equal_the_simulation(name: str, num_workers: int) -> None:
    schedule = SCHEDULES[name](ScheduleShape(num_workers, num_workers))
    plain = lower(schedule, clip=True)
    costs = unequal_costs(plain, num_workers, latency_ns=5 * MS, unit_ns=MS)
    layers = {
        stage: KfacCosts(*(MS // (2 + stage + side) for side in range(6)))
        for stage in range(num_workers)
    }
    partition = [(stage, stage + 1) for stage in range(num_workers)]
    filling = pipe_fisher(schedule, costs, layers, partition=partition, lowered=plain)
    filled = lower(filling.schedules[0], clip=True)
    assert filled.num_actions > plain.num_actions
    priced = replace(costs, side_ns=filling.side_ns)
    (played,) = emulate(filled, priced)
    assert_equal_times(played, simulate(filled, priced))
    assert played.step_ns == simulate(plain, costs).step_ns


def test_virtual_times_of_16_workers() -> None:
    schedule = lower(one_f_one_b(ScheduleShape(16, 32)), clip=True)
    costs = unequal_costs(schedule, 16, latency_ns=5 * MS, unit_ns=MS)
    (played,) = emulate(schedule, costs)
    assert_equal_times(played, simulate(schedule, costs))


def test_virtual_collectives_of_parts_of_the_workers() -> None:
    # Stage 0 on workers 0 and 1, stage 1 on 2 alone; 0 and 2 share parameters of both stages.
    rows = ("0F0 0B0", "0F1 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2")
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    schedule = lower(Schedule("test", 2, 3, workers), tied=[(0, 1)], clip=True)
    costs = unequal_costs(schedule, 7, latency_ns=3, unit_ns=1000)
    (played,) = emulate(schedule, costs)
    assert_equal_times(played, simulate(schedule, costs))


def test_sleeping_workers_keep_the_predicted_step_time() -> None:
    schedule = lower(one_f_one_b(ScheduleShape(2, 2)), clip=True)
    costs = unequal_costs(schedule, 0, latency_ns=5 * MS, unit_ns=50 * MS)
    timelines = emulate(schedule, costs, clock="wall", steps=3)
    predicted_ns = simulate(schedule, costs).step_ns
    measured_ns = median(timeline.step_ns for timeline in timelines)
    assert predicted_ns <= measured_ns < 1.03 * predicted_ns
    assert compute_order(timelines[0]) == compute_order(simulate(schedule, costs))


class TinyEngine(StandIn):
    """Real products whose cost is known to differ between the stages: 1, 2, ... layers each."""

    def __init__(self, schedule: Schedule, transport) -> None:
        self._layers = {
            stage: nn.Sequential(*(nn.Linear(256, 256) for _ in range(stage + 1)))
            for stage in schedule.stages_of_worker[transport.worker]
        }
        self._outputs: dict[tuple[int, int | None], Tensor] = {}

    def run(self, action: Action) -> None:
        cell = action.stage, action.microbatch
        if action.kind is Kind.F:
            self._outputs[cell] = self._layers[action.stage](torch.ones(256, 256)).sum()
        elif action.kind is Kind.B:
            self._outputs.pop(cell).backward()


def test_measured_costs_predict_what_they_were_measured_from() -> None:
    schedule = lower(one_f_one_b(ScheduleShape(3, 6)))
    costs = unequal_costs(schedule, 0, latency_ns=MS // 10, unit_ns=MS // 10)
    timelines = emulate(schedule, costs, clock="measured", steps=7, make_engine=TinyEngine)[2:]
    table = measured_costs(timelines, costs)
    forward_ns = [int(table.time_ns[worker, worker, KIND_INDEX[Kind.F]]) for worker in range(3)]
    assert forward_ns == sorted(forward_ns)  # stages of 1, 2 and 3 layers
    differences = [
        timeline.step_ns / simulate(schedule, measured_costs([timeline], costs)).step_ns - 1
        for timeline in timelines
    ]
    assert abs(median(differences)) < 0.05


def test_measured_costs_are_means() -> None:
    """Forwards of 1 and 4 ns: 5 / 2, rounded down; backwards of 6 and 6."""
    schedule = gpipe(ScheduleShape(1, 2))
    timeline = Timeline("measured", schedule, array("q", (0, 1, 5, 11)), array("q", (1, 5, 11, 17)))
    time_ns = measured_costs([timeline], CostTable.uniform(1, 1)).time_ns[0, 0]
    assert [time_ns[KIND_INDEX[kind]] for kind in (Kind.F, Kind.B)] == [2, 6]


def test_what_does_not_go_together_is_refused() -> None:
    compute_only = gpipe(ScheduleShape(2, 1))
    costs = CostTable.uniform(2, 2)
    with pytest.raises(UsageError) as caught:
        emulate(compute_only, costs, clock="sundial", steps=0)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "this cannot be emulated\n"
        "  clock 'sundial' is not known; choose one of virtual, measured, wall\n"
        "  steps is 0; ask for 1 or more\n"
        "  schedule gpipe has no messages; lower it with ir.passes.lower"
    )
    schedule = lower(compute_only)
    with pytest.raises(UsageError, match="'measured' runs a real model; give make_engine"):
        emulate(schedule, costs, clock="measured")
    with pytest.raises(UsageError, match="'wall' runs no model; leave make_engine out"):
        emulate(schedule, costs, clock="wall", make_engine=TinyEngine)
    with pytest.raises(UsageError, match="the costs are for 3 workers and 2 stages"):
        emulate(schedule, CostTable.uniform(3, 2))


def test_a_message_that_is_mixed_up_is_noticed() -> None:
    class Liar(StandIn):
        def __init__(self, schedule: Schedule, transport) -> None:
            pass

        def payload(self, action: Action) -> tuple[Tensor, ...]:
            assert action.microbatch is not None
            return super().payload(action._replace(microbatch=action.microbatch + 1))

    schedule = lower(gpipe(ScheduleShape(2, 2)))
    with pytest.raises(ExecutionError, match="1RECV_F0 received"):
        emulate(schedule, CostTable.uniform(2, 2), clock="measured", make_engine=Liar)
