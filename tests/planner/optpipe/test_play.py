"""What the compiled judge sees is what the simulator says, and copies stand where they should."""

from itertools import pairwise

import numpy as np
import pytest

from evener.cost.host_copies import with_host_copies
from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.check import violations
from evener.ir.memory import peak_bytes
from evener.ir.schedule import Schedule
from evener.planner.optpipe.ada_offload import ALL_AGAIN, ALL_OUT, AS_FITS, fill_memory
from evener.planner.optpipe.anneal import anneal
from evener.planner.optpipe.bench import new_bench
from evener.planner.optpipe.longest_chain import trace
from evener.planner.optpipe.orders import Orders, copied, orders_of, schedule_of
from evener.planner.optpipe.place_copies import is_idle
from evener.planner.optpipe.play import play
from evener.planner.optpipe.world import NEVER, World
from evener.planner.shared_links import meet
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import simulate
from evener.spec.cluster import Link


def texts(world: World, orders: Orders) -> list[str]:
    """Per worker, its list with copies."""
    bench = new_bench(world, orders)
    assert play(world, orders, bench, NEVER) < NEVER
    schedule = schedule_of(world, orders, bench.played, bench.played_lengths)
    return [" ".join(map(str, actions)) for actions in schedule.workers]


def filled(world: World, schedule: Schedule, policy: int) -> Orders:
    orders = orders_of(schedule)
    assert fill_memory(world, orders, new_bench(world, orders), policy)
    return orders


def test_what_is_needed_last_leaves_once_memory_is_full(make_world) -> None:
    # GPipe, 4 microbatches of 100 bytes, room for 3. B runs from 3 to 0 or from 0 to 3: here 0 is
    # needed last. It begins to leave behind its forward, and is claimed for F3 alone. It comes back
    # when there is room, behind the first backward, which is more than 5/4 of its time ahead.
    schedule = SCHEDULES["gpipe"](ScheduleShape(1, 4))
    order = [action.microbatch for action in schedule.workers[0]]
    assert order == [0, 1, 2, 3, 3, 2, 1, 0]
    _, world = make_world(schedule, cap_bytes=300)
    assert texts(world, filled(world, schedule, ALL_OUT)) == [
        "0F0 0OFFLOAD0 0F1 0F2 0FREE0 0F3 0B3 0B2 0RELOAD0 0B1 0B0"
    ]
    # Recomputed instead, it holds its input, 5 bytes, and so the next one must go too.
    assert texts(world, filled(world, schedule, ALL_AGAIN)) == [
        "0F0 0F1 0F2 0F3 0B3 0B2 0R1 0B1 0R0 0B0"
    ]
    # With room for all, nothing leaves, whatever the policy.
    _, world = make_world(schedule, cap_bytes=400)
    for policy in (AS_FITS, ALL_OUT, ALL_AGAIN):
        assert "OFFLOAD" not in texts(world, filled(world, schedule, policy))[0]
    # One microbatch alone is too much.
    _, world = make_world(schedule, cap_bytes=99)
    orders = orders_of(schedule)
    assert not fill_memory(world, orders, new_bench(world, orders), AS_FITS)


def test_the_link_decides_between_offload_and_recompute(make_world) -> None:
    # F1 F2 F3 and B3 B2 B1 stand between F0 and B0: 3 x 10 + 3 x 20 = 90 ns, 45 for each way.
    schedule = SCHEDULES["gpipe"](ScheduleShape(1, 4))
    for copy_ns, kind in ((45, Kind.OFFLOAD), (46, Kind.R)):
        _, world = make_world(schedule, cap_bytes=305, copy_ns=copy_ns)
        (text,) = texts(world, filled(world, schedule, AS_FITS))
        assert f"0{kind}0" in text


NAMES = ["gpipe", "one_f_one_b", "zb_h1", "interleaved_one_f_one_b", "v_half"]


def annealed(world: World, orders: Orders, num_judged: int) -> tuple[Orders, int]:
    current, best = copied(orders), copied(orders)
    bench = new_bench(world, orders)
    found_ns = np.full(2, play(world, orders, bench, NEVER), dtype=np.int64)
    anneal(
        world,
        (current, best),
        bench,
        np.array([7], dtype=np.uint64),
        found_ns,
        (9.0, 1.0, num_judged),
    )
    return best, int(found_ns[1])


def assert_as_simulated(
    world: World, orders: Orders, costs: CostTable, *, copy_ns: int, cap_bytes: int
) -> None:
    bench = new_bench(world, orders)
    step_ns = play(world, orders, bench, NEVER)
    schedule = schedule_of(world, orders, bench.played, bench.played_lengths)
    assert not violations(schedule)
    links = [Link(copy_ns, 0)] * schedule.num_workers
    priced = with_host_copies(costs, schedule, links=links)
    timeline = simulate(schedule, priced)
    assert timeline.step_ns == step_ns
    assert max(peak_bytes(schedule, priced.memory)) <= cap_bytes
    groups = world.group.tolist()
    if len(set(groups)) < len(groups):
        assert not meet(timeline, groups)


@pytest.mark.parametrize("groups", [None, (0, 0)], ids=["alone", "shared"])
@pytest.mark.parametrize("name", NAMES)
def test_the_search_sees_what_the_simulator_says(make_world, name: str, groups) -> None:
    chunks = 2 if name in ("interleaved_one_f_one_b", "v_half") else 1
    schedule = SCHEDULES[name](ScheduleShape(2, 6, chunks))
    costs, world = make_world(schedule, cap_bytes=235, copy_ns=8, groups=groups)
    begun = 0
    for policy in (AS_FITS, ALL_OUT, ALL_AGAIN):
        orders = orders_of(schedule)
        if not fill_memory(world, orders, new_bench(world, orders), policy):
            continue
        if play(world, orders, new_bench(world, orders), NEVER) >= NEVER:
            continue  # two copies would have to meet
        begun += 1
        assert_as_simulated(world, orders, costs, copy_ns=8, cap_bytes=235)
        better, step_ns = annealed(world, orders, 300)
        assert step_ns <= play(world, orders, new_bench(world, orders), NEVER)
        assert step_ns == play(world, better, new_bench(world, better), NEVER)
        assert_as_simulated(world, better, costs, copy_ns=8, cap_bytes=235)
    assert begun


def test_the_actions_of_a_cell_keep_their_order(make_world) -> None:
    schedule = SCHEDULES["zb_h1"](ScheduleShape(2, 6))
    _, world = make_world(schedule, cap_bytes=300)
    best, _ = annealed(world, filled(world, schedule, AS_FITS), 2000)
    for row, length in zip(best.action.tolist(), best.length.tolist(), strict=True):
        kinds: dict[int, list[int]] = {}
        for code in row[:length]:
            if not is_idle(best, code // 4, code % 4):
                kinds.setdefault(code // 4, []).append(code % 4)
        assert all(found == sorted(found) for found in kinds.values())
        assert len(kinds) == 6


def test_a_limit_ends_the_play(make_world) -> None:
    schedule = SCHEDULES["one_f_one_b"](ScheduleShape(2, 4))
    _, world = make_world(schedule, cap_bytes=1000)
    orders = orders_of(schedule)
    bench = new_bench(world, orders)
    # 1F1B: (4 + 2 - 1) x 30 ns.
    assert play(world, orders, bench, NEVER) == 150
    assert play(world, orders, bench, 150) == 150
    assert play(world, orders, bench, 149) == NEVER


def test_pairs_take_turns(make_world) -> None:
    # Both workers offload; in the timeline their copies of one direction follow one another.
    schedule = SCHEDULES["one_f_one_b"](ScheduleShape(2, 6))
    costs, world = make_world(
        schedule, cap_bytes=130, copy_ns=9, groups=(0, 0), may=(1, 1, 0), weight_bytes=30
    )
    orders = filled(world, schedule, ALL_OUT)
    better, _ = annealed(world, orders, 500)
    bench = new_bench(world, better)
    assert play(world, better, bench, NEVER) < NEVER
    played = schedule_of(world, better, bench.played, bench.played_lengths)
    timeline = simulate(played, with_host_copies(costs, played, links=[Link(9, 0)] * 2))
    spans = sorted(
        (span.start_ns, span.end_ns)
        for worker in range(2)
        for span in timeline.spans(worker)
        if span.action.kind is Kind.OFFLOAD
    )
    assert spans
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def chain(world: World, orders: Orders) -> list[tuple[int, str]]:
    """Worker and action along the longest chain, from the begin to the end."""
    bench = new_bench(world, orders)
    assert play(world, orders, bench, NEVER) < NEVER
    trace(world, orders, bench)
    found = []
    for worker, place in bench.chain[: int(bench.num_chain[0])][::-1].tolist():
        cell, kind = divmod(int(orders.action[worker, place]), 4)
        stage, microbatch = divmod(cell, int(world.sizes[1]))
        found.append((worker, f"{stage}{'FRIW'[kind]}{microbatch}"))
    return found


def test_the_longest_chain(make_world) -> None:
    # 1F1B, 2 workers, 2 microbatches: down to worker 1, all that it does, and the way back.
    schedule = SCHEDULES["one_f_one_b"](ScheduleShape(2, 2))
    _, world = make_world(schedule, cap_bytes=1000)
    assert chain(world, orders_of(schedule)) == [
        (0, "0F0"),
        (1, "1F0"),
        (1, "1I0"),
        (1, "1F1"),
        (1, "1I1"),
        (0, "0I1"),
    ]


def test_the_longest_chain_goes_through_copies(make_world) -> None:
    # A cell leaves for 30 ns and comes back for 30 ns with one forward in between: what waits for a
    # copy waits for what stood in front of it.
    schedule = SCHEDULES["gpipe"](ScheduleShape(1, 2))
    _, world = make_world(schedule, cap_bytes=100, copy_ns=30, may=(1, 1, 0))
    orders = filled(world, schedule, ALL_OUT)
    assert texts(world, orders) == ["0F0 0OFFLOAD0 0FREE0 0F1 0B1 0RELOAD0 0B0"]
    assert chain(world, orders) == [(0, "0F0"), (0, "0F1"), (0, "0I1"), (0, "0I0")]
