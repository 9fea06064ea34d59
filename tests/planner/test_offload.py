"""SPPO's rule: what hides behind the computation leaves, and only as many cells as must."""

from collections import Counter

import pytest

from evener.cost.host_copies import with_host_copies
from evener.cost.table import CostTable
from evener.errors import PlanInfeasible
from evener.ir.action import Kind
from evener.ir.memory import peak_bytes
from evener.ir.passes import insert_offload, lower, offloadable
from evener.ir.plan import Plan
from evener.planner.compare import Comparison, PlannedWorld, compare
from evener.planner.find_plan import find_plan
from evener.planner.offload import hidden_bytes, plan_offload
from evener.report.comparison import comparison_cells, comparison_headings, measures_of
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.spec.cluster import Link

LINK = Link(latency_ns=2, bytes_per_s=10**9)


def costs_of(num_workers: int, **times: int) -> CostTable:
    return CostTable.uniform(num_workers, num_workers, activation_bytes=100, **times)


def test_as_much_leaves_as_the_link_carries_beside_one_compute_action() -> None:
    # On the way out a copy stands beside F (20 ns), on the way back beside B (40): 20 - 2 bytes.
    plain = SCHEDULES["gpipe"](ScheduleShape(1, 6))
    costs = costs_of(1, forward_ns=20, backward_ns=40)
    assert hidden_bytes(plain, costs, [LINK]) == (18,)
    # A link of 9 bytes per ns carries 162 in that time: all 100. One with a latency of 20, nothing.
    assert hidden_bytes(plain, costs, [Link(2, 9 * 10**9)]) == (100,)
    assert hidden_bytes(plain, costs, [Link(20, 10**9)]) == (0,)
    # What others need stays.
    assert hidden_bytes(plain, costs, [Link(2, 9 * 10**9)], [70]) == (30,)
    # Where no cell lives long enough, nothing can leave.
    assert hidden_bytes(SCHEDULES["gpipe"](ScheduleShape(1, 2)), costs, [LINK]) == (0,)


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "zb_h1"])
def test_what_hides_costs_no_time(name: str) -> None:
    plain = SCHEDULES[name](ScheduleShape(4, 8))
    costs = costs_of(4, forward_ns=20, input_ns=20, weight_ns=20)
    links = [LINK] * 4
    num_bytes = hidden_bytes(plain, costs, links)
    assert num_bytes[0] == 18
    offloaded = insert_offload(plain, [c for c in offloadable(plain) if num_bytes[c[0]]])
    priced = with_host_copies(costs, offloaded, links=links, num_bytes=num_bytes)
    assert simulate(lower(offloaded), priced).step_ns == simulate(lower(plain), costs).step_ns
    # One byte more per copy does not hide: some worker waits.
    more = with_host_copies(costs, offloaded, links=links, num_bytes=[19] * 4)
    assert simulate(lower(offloaded), more).step_ns > simulate(lower(plain), costs).step_ns


def test_the_fewest_cells_leave_and_the_longest_lived_first() -> None:
    # GPipe, 8 microbatches of 100 bytes, of which 50 can leave: 800 in all. With cells 0 .. n - 1
    # away, the peak is 800 - 50 n at the last forward, where microbatches 6 and 7 must stay.
    plain = SCHEDULES["gpipe"](ScheduleShape(1, 8))
    costs = costs_of(1, forward_ns=52, backward_ns=104)
    expected = {800: 0, 799: 1, 650: 3, 649: 4, 500: 6, 499: 6}
    for cap, num_cells in expected.items():
        found = plan_offload(plain, costs, links=[LINK], cap_bytes=[cap], lowered=lower)
        assert found is not None
        assert found.num_bytes == (50,)
        left = [a.microbatch for a in found.schedule.workers[0] if a.kind is Kind.OFFLOAD]
        assert left == list(range(num_cells))
        memory = with_host_copies(costs, plain, links=[LINK], num_bytes=[50]).memory
        assert peak_bytes(found.schedule, memory) == (800 - 50 * num_cells,)
    slow = [Link(1000, 10**9)]
    assert plan_offload(plain, costs, links=slow, cap_bytes=[0], lowered=lower) is None


def test_each_worker_offloads_for_itself() -> None:
    # 1F1B on 4 workers holds 4, 3, 2, 1 microbatches of 100 bytes; on worker 0, cells of which
    # 50 bytes leave bring it from 400 to 350 or less; worker 2 and 3 are under the cap as it is.
    plain = SCHEDULES["one_f_one_b"](ScheduleShape(4, 8))
    costs = costs_of(4, forward_ns=52, backward_ns=104)
    found = plan_offload(plain, costs, links=[LINK] * 4, cap_bytes=[350] * 4, lowered=lower)
    assert found is not None
    offloads = Counter(
        worker for worker, action in found.schedule.actions() if action.kind is Kind.OFFLOAD
    )
    assert set(offloads) == {0}
    memory = with_host_copies(costs, plain, links=[LINK] * 4, num_bytes=found.num_bytes).memory
    assert peak_bytes(found.schedule, memory)[0] <= 350
    assert peak_bytes(plain, memory) == (400, 300, 200, 100)


def test_a_plan_offloads_where_the_job_allows_it_and_memory_demands_it(make_problem) -> None:
    # 1F1B, a layer of 1 ms and 1 MB a worker: worker 0 holds 4 microbatches and room for the
    # backward that runs (1 MB): 5 MB. The link to the host (5 bytes per ns, 30 us) carries all of
    # the 1 MB in 230 us. On workers 2 and 3 nothing lives long enough to leave.
    def plan(cap_bytes: int, *, offload: bool) -> Plan:
        problem = make_problem(
            [1_000_000] * 4,
            num_workers=4,
            num_sequences=8,
            activation_bytes=1_000_000,
            memory_cap_bytes=cap_bytes,
            offload=offload,
        )
        parts = (problem.model, problem.cluster, problem.job, problem.profile)
        return find_plan(*parts, planner="uniform").best

    roomy, tight = plan(5_000_000, offload=True), plan(4_200_000, offload=True)
    assert roomy.predicted is not None
    assert tight.predicted is not None
    assert roomy.offload_bytes is None
    assert roomy.predicted.peak_bytes == (5_000_000, 4_000_000, 3_000_000, 2_000_000)
    assert tight.offload_bytes == (1_000_000, 1_000_000, 0, 0)
    assert tight.predicted.peak_bytes == (4_000_000, 4_000_000, 3_000_000, 2_000_000)
    assert tight.predicted.step_ns == roomy.predicted.step_ns
    assert Plan.model_validate_json(tight.model_dump_json()) == tight
    with pytest.raises(PlanInfeasible):
        plan(4_200_000, offload=False)


def test_a_comparison_says_how_many_activations_each_schedule_offloads(make_problem) -> None:
    def compared(*, offload: bool) -> Comparison:
        problem = make_problem(
            [1_000_000] * 4,
            num_workers=4,
            num_sequences=8,
            activation_bytes=1_000_000,
            memory_cap_bytes=4_200_000,
            offload=offload,
        )
        one_f_one_b = {"one_f_one_b": SCHEDULES["one_f_one_b"]}
        return compare(PlannedWorld(problem), chunks=(1,), schedules=one_f_one_b)

    found = compared(offload=True)
    (row,) = comparison_cells(found, measures_of(found))
    column = comparison_headings(found, measures_of(found)).index("offloaded")
    # Worker 0 holds 4 MB of activations where 3.2 are allowed: one of those in flight is away at
    # any time. Its 8 cells but for the last two live long enough.
    assert found.compared[0].num_offloaded == int(row[column].text) > 0
    assert [refused.entry.name for refused in compared(offload=False).refused] == ["one_f_one_b"]
