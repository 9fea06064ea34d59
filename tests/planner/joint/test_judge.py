"""The judge says what the simulator says of the order that it decides, to the nanosecond.

And to the byte, but for received messages that wait, which only the simulator knows.
"""

import numpy as np
import pytest

from evener.ir.check import violations
from evener.planner.joint.bench import new_bench
from evener.planner.joint.judge import judge
from evener.planner.joint.moves import move
from evener.planner.joint.orders import (
    holds_too_much,
    new_deck,
    orders_of,
    partition_of,
    play,
    schedule_of,
)
from evener.planner.joint.starts import most_stages, period_ns, starts
from evener.planner.joint.world import NEVER, world_of


def _random_states(world, seed, *, count):
    """Starts, each after fifty random moves."""
    random = np.array([seed], dtype=np.uint64)
    begins = list(starts(world))
    for number in range(count):
        state = begins[number % len(begins)]
        for _ in range(50):
            move(world, state, new_bench(world, 1).rooms, random, period_ns(world), NEVER)
        yield state


@pytest.mark.parametrize(("workers", "microbatches"), [(1, 3), (2, 4), (3, 5), (4, 6)])
def test_times_are_the_simulators(make_candidate, workers, microbatches):
    candidate = make_candidate(
        workers, workers=workers, microbatches=microbatches, layers=9, overhead_ns=2
    )
    world = world_of(candidate)
    bench = new_bench(world, most_stages(world))
    for state in _random_states(world, 1, count=12):
        step_ns = judge(world, state, bench, NEVER)
        orders = orders_of(world, state, bench)
        schedule = schedule_of(orders, microbatches)
        assert violations(schedule) == []
        assert candidate.judge(partition_of(orders), schedule).step_ns == step_ns
        assert play(world, orders, new_deck(world, orders), NEVER) == step_ns
        assert judge(world, state, bench, step_ns) == step_ns
        # one less is too much to ask, and that is found out early
        assert judge(world, state, bench, step_ns - 1) == NEVER
        assert play(world, orders, new_deck(world, orders), step_ns - 1) == NEVER


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("cap_bytes", [900, 1100, 1400])
def test_caps_are_kept(make_candidate, cap_bytes, recompute):
    candidate = make_candidate(
        3,
        workers=2,
        microbatches=6,
        layers=8,
        message_bytes=0,
        memory_cap_bytes=cap_bytes,
        recompute=recompute,
    )
    world = world_of(candidate)
    bench = new_bench(world, most_stages(world))
    num_fitting = 0
    for state in _random_states(world, 2, count=30):
        if judge(world, state, bench, NEVER) == NEVER:
            continue
        num_fitting += 1
        orders = orders_of(world, state, bench)
        assert not holds_too_much(world, orders)
        assert candidate.judge(partition_of(orders), schedule_of(orders, 6)).over == ()
    assert num_fitting > 0


def test_orders_know_what_they_hold(make_candidate):
    # thirty orders judged without a cap, and then a cap that every second one is over
    sizes = {"workers": 2, "microbatches": 6, "layers": 8, "message_bytes": 0}
    roomy = make_candidate(3, **sizes)
    world = world_of(roomy)
    bench = new_bench(world, most_stages(world))
    peaks = []
    for state in _random_states(world, 3, count=30):
        judge(world, state, bench, NEVER)
        orders = orders_of(world, state, bench)
        found = roomy.judge(partition_of(orders), schedule_of(orders, 6))
        peaks.append((max(found.outcome.peak_bytes), orders))
    cap_bytes = sorted(peak for peak, _ in peaks)[14]
    tight = make_candidate(3, **sizes, memory_cap_bytes=cap_bytes)
    for peak, orders in peaks:
        assert holds_too_much(world_of(tight), orders) == (peak > cap_bytes)
