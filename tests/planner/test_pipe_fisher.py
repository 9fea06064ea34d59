"""PipeFisher's placement: nothing else moves, and nothing is left out that a bubble could take."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from evener.cost.table import KIND_INDEX, CostTable
from evener.errors import PlanInfeasible
from evener.ir.action import Kind
from evener.ir.check import violations
from evener.ir.passes import lower, replicate
from evener.ir.schedule import Schedule
from evener.planner.pipe_fisher import KfacCosts, kfac_name, pipe_fisher
from evener.planner.side_work import Filling, SideUnit
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.testing.worlds import unequal_costs, unit_costs

BACKWARDS = (Kind.B, Kind.I)


def partition_of(num_stages: int, layers_per_stage: int) -> list[tuple[int, int]]:
    return [(s * layers_per_stage, (s + 1) * layers_per_stage) for s in range(num_stages)]


def random_layers(num_layers: int, most_ns: int) -> dict[int, KfacCosts]:
    random = Random(num_layers)
    return {
        layer: KfacCosts(*(random.randint(1, most_ns) for _ in range(6)))
        for layer in range(num_layers)
    }


def scaled(costs: CostTable, factor: int) -> CostTable:
    return replace(costs, time_ns=costs.time_ns * factor)


def reserved_ns(unit: SideUnit) -> int:
    return unit.duration_ns + -(-unit.duration_ns // 20)  # 5 % more, rounded up


class Checker:
    """Knows the rules of the paper by the names of the work, and nothing of how it was placed."""

    def __init__(self, schedule: Schedule, costs: CostTable, filling: Filling) -> None:
        self.filling = filling
        played = simulate(lower(schedule), costs)
        self.step_ns = played.step_ns
        self.busy: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.ended: dict[tuple[int, int | None, Kind], int] = {}
        for worker in range(schedule.num_workers):
            for span in played.spans(worker):
                action = span.action
                self.ended[action.stage, action.microbatch, action.kind] = span.end_ns
                if action.kind in (Kind.F, *BACKWARDS, Kind.W, Kind.R):
                    for step in range(len(filling.schedules)):
                        self.busy[worker, step].append((span.start_ns, span.end_ns))
        self.done: dict[tuple[int, str], tuple[int, int]] = {}
        for one in filling.placed:
            end_ns = one.start_ns + reserved_ns(one.unit)
            self.busy[one.unit.worker, one.step].append((one.start_ns, end_ns))
            key = (one.unit.action.stage, str(one.unit.action.name))
            self.done[key] = max(self.done.get(key, (0, 0)), (one.step, end_ns))

    def ready_ns(self, unit: SideUnit, step: int) -> int | None:
        """When the unit could start in a step; None: not before the step is over."""
        action = unit.action
        work, letters = str(action.name).split("_")
        if work in ("covA", "covB"):
            if step > 0:
                return 0
            kinds = (Kind.F,) if work == "covA" else BACKWARDS
            ends = [self.ended.get((action.stage, action.microbatch, kind)) for kind in kinds]
            return next(end for end in ends if end is not None)
        sync, cov = f"sync{work[-1]}_{letters}", f"cov{work[-1]}_{letters}"
        before = cov if work.startswith("sync") or (action.stage, sync) not in self.done else sync
        done_step, done_ns = self.done[action.stage, before]
        return None if done_step > step else done_ns if done_step == step else 0

    def idle(self, worker: int, step: int) -> list[tuple[int, int]]:
        spans = sorted(self.busy[worker, step])
        for (_, end_ns), (start_ns, _) in pairwise(spans):
            assert end_ns <= start_ns, "two things at once"
        edges = [0, *(ns for span in spans for ns in span), self.step_ns]
        return [pair for pair in zip(edges[::2], edges[1::2], strict=True) if pair[0] < pair[1]]

    def check(self) -> None:
        for one in self.filling.placed:
            own_ready_ns = self.ready_ns(one.unit, one.step)
            assert own_ready_ns is not None
            assert own_ready_ns <= one.start_ns, f"{one} before what it needs"
            for step in range(one.step + 1):
                ready_ns = self.ready_ns(one.unit, step)
                for from_ns, to_ns in self.idle(one.unit.worker, step):
                    if ready_ns is None or (step, from_ns) > (one.step, one.start_ns):
                        continue
                    could_ns = max(from_ns, ready_ns)
                    if (step, to_ns) == (one.step, one.start_ns):
                        assert could_ns == one.start_ns, f"{one} could start at {could_ns}"
                    else:
                        assert could_ns + reserved_ns(one.unit) > to_ns, f"{one} fits at {could_ns}"


@pytest.mark.parametrize("costs_of", [unit_costs, unequal_costs])
@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "chimera", "zb_h1"])
def test_no_unit_is_left_outside_a_bubble_that_could_take_it(name: str, costs_of: object) -> None:
    schedule = SCHEDULES[name](ScheduleShape(8, 8))
    costs = scaled(costs_of(8, 8), 1000)  # type: ignore[operator]
    layers = random_layers(16, most_ns=900)
    filling = pipe_fisher(schedule, costs, layers, partition=partition_of(8, 2))
    Checker(schedule, costs, filling).check()

    # covA and covB of 8 microbatches, invA and invB, of 16 layers; 2 workers hold a stage of
    # Chimera: they have half of the microbatches each, and both invert and sum.
    expected = 16 * (2 * 8 + (2 if name != "chimera" else 2 * 2 + 2 * 2))
    units = [unit.unit for unit in filling.placed]
    assert len({(unit.worker, unit.action) for unit in units}) == len(units) == expected
    listed = [a for s in filling.schedules for _, a in s.actions() if a.kind is Kind.X]
    assert sorted(map(str, listed)) == sorted(str(unit.action) for unit in units)


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "chimera", "zb_h1", "pipedream_2bw"])
def test_a_step_with_side_work_is_as_long_as_without(name: str) -> None:
    num_updates = 3 if name == "pipedream_2bw" else 1
    shape = ScheduleShape(8, 8, num_updates=num_updates)
    schedule = SCHEDULES[name](shape)
    costs = scaled(unequal_costs(8, 8), 1000)
    costs.time_ns[:, :, KIND_INDEX[Kind.STEP]] = 700
    filling = pipe_fisher(schedule, costs, random_layers(8, 3000), partition=partition_of(8, 1))
    plain = simulate(lower(schedule, clip=True), costs)
    times = {
        (worker, span.action): (span.start_ns, span.end_ns)
        for worker in range(8)
        for span in plain.spans(worker)
    }
    for step in filling.schedules:
        assert violations(step) == []
        played = simulate(lower(step, clip=True), replace(costs, side_ns=filling.side_ns))
        assert played.step_ns == plain.step_ns
        for worker in range(8):
            for span in played.spans(worker):
                if span.action.kind in (Kind.F, Kind.B, Kind.I, Kind.W):
                    assert times[worker, span.action] == (span.start_ns, span.end_ns)


def test_units_wait_for_the_next_step_and_keep_their_slack() -> None:
    # GPipe, 2 workers, 1 microbatch, F = 100, B = 200: 0F 0-100, 1F 100-200, 1B 200-400,
    # 0B 400-600. Worker 0 waits 100-400, worker 1 0-100 and 400-600.
    # Worker 0: covA takes 210 of 300 with slack; covB not before 0B, so 110 of 300 in the next
    # step; then invA 110, and 80 are left: invB, 84 with slack, comes in the third step.
    schedule = SCHEDULES["gpipe"](ScheduleShape(2, 1))
    costs = scaled(unit_costs(2, 2), 100)
    layers = {0: KfacCosts(cov_a_ns=200, cov_b_ns=104, inv_a_ns=104, inv_b_ns=80)}
    filling = pipe_fisher(schedule, costs, layers, partition=((0, 1), (1, 2)))
    assert [list(map(str, step.workers[0])) for step in filling.schedules] == [
        ["0F0", "0X:covA_a0", "0B0"],
        ["0F0", "0X:covB_a0", "0X:invA_a", "0B0"],
        ["0F0", "0X:invB_a", "0B0"],
    ]
    assert [(one.step, one.start_ns) for one in filling.placed] == [
        (0, 100),
        (1, 100),
        (1, 210),  # 100 + 104 * 1.05 rounded up
        (2, 100),
    ]


def test_replicas_sum_their_factors_and_share_their_bubbles() -> None:
    # As above in two replicas, of which the second takes twice as long: its worker 0 waits
    # 200-800, the first one's 100-400, so that they share 200-400.
    schedule = SCHEDULES["gpipe"](ScheduleShape(2, 1))
    costs = scaled(unit_costs(4, 2), 100)
    costs.time_ns[2:] *= 2
    layers = {0: KfacCosts(90, 90, 90, 90, sync_a_ns=50, sync_b_ns=50)}
    filling = pipe_fisher(
        schedule,
        costs,
        layers,
        partition=((0, 1), (1, 2)),
        lowered=lower(replicate(schedule, 2)),
    )
    # 95 of 200 for covA, 53 for its sum; covB is not ready, nor does invA fit into the 52 left.
    assert [list(map(str, step.workers[0])) for step in filling.schedules] == [
        ["0F0", "0X:covA_a0", "0X:syncA_a", "0B0"],
        ["0F0", "0X:covB_a0", "0X:syncB_a", "0B0"],
        ["0F0", "0X:invA_a", "0X:invB_a", "0B0"],
    ]


def test_what_fits_nowhere_is_named() -> None:
    schedule = SCHEDULES["gpipe"](ScheduleShape(2, 1))
    costs = scaled(unit_costs(2, 2), 100)
    layers = {0: KfacCosts(200, 100, 290, 100)}
    with pytest.raises(PlanInfeasible) as caught:
        pipe_fisher(schedule, costs, layers, partition=((0, 1), (1, 2)))
    assert str(caught.value) == (
        "side work does not fit into the bubbles\n"
        "  X:invA_a of stage 0 takes 305 ns with 5 % of slack, the longest bubble of worker 0 is "
        "300 ns; cut the work into smaller parts, or take a schedule with longer bubbles"
    )


def test_names_have_letters_only() -> None:
    assert [kfac_name("invB", layer) for layer in (0, 25, 26, 51, 52, 702)] == [
        *("invB_a", "invB_z", "invB_aa", "invB_az", "invB_ba", "invB_aaa"),
    ]
