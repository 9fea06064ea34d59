"""Whatever the schedule and the costs, the kernel gives what the event loop gives."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from evener.cost.table import CostTable
from evener.ir.action import Action, Kind
from evener.ir.check import violations
from evener.ir.memory import peak_bytes
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import bubbles, makespans, simulate, simulate_many
from evener.sim.reference import simulate_by_events
from evener.testing.random_costs import random_costs
from evener.testing.random_schedules import (
    random_durations,
    random_schedule,
    with_random_braids,
)

PER_TEST = 10


def with_side_work(random: Random, schedule: Schedule) -> Schedule:
    workers = [list(actions) for actions in schedule.workers]
    for actions in workers:
        for _ in range(random.randint(0, 2)):
            side_work = Action(0, Kind.X, name=random.choice("pq"))
            actions.insert(random.randint(0, len(actions)), side_work)
    return replace(schedule, workers=tuple(map(tuple, workers)))


def drawn(seed: int) -> tuple[Random, Schedule, CostTable]:
    random = Random(seed)
    schedule = random_schedule(random)
    if random.random() < 0.3:
        schedule = with_side_work(random, schedule)
    return random, schedule, random_costs(random, schedule)


def lowered(random: Random, schedule: Schedule) -> Schedule:
    last = schedule.num_stages - 1
    tied = [(0, last)] if last > 0 and random.random() < 0.5 else []
    clip = random.random() < 0.5
    return lower(schedule, tied=tied, clip=clip, durations_ns=random_durations(random))


def check_seed(seed: int, *, braided: bool = False) -> None:
    random, schedule, costs = drawn(seed)
    if braided:
        schedule = with_random_braids(random, schedule)
    for played in (schedule, lowered(random, schedule)):
        timeline = simulate(played, costs)
        assert timeline == simulate_by_events(played, costs), seed
        assert timeline.peak_bytes == peak_bytes(played, costs.memory), seed
        (outcome,) = simulate_many(played, [costs])
        assert outcome == (timeline.step_ns, timeline.peak_bytes, bubbles(timeline)), seed
        parts = outcome.bubbles
        for worker in range(played.num_workers):
            idle_ns = (parts.warm_up_ns[worker], parts.cool_down_ns[worker])
            idle_ns += (parts.residual_ns[worker],)
            assert min(idle_ns) >= 0, seed
            assert parts.busy_ns[worker] + sum(idle_ns) == timeline.step_ns, seed


@pytest.mark.parametrize("name", ["pipedream_2bw", "amdp_2", "amdp_4"])
def test_kernel_equals_event_loop_over_several_updates(name: str) -> None:
    schedule = SCHEDULES[name](ScheduleShape(4, 8, num_updates=3))
    for seed in range(PER_TEST):
        random = Random(seed)
        for played in (schedule, lowered(random, schedule)):
            costs = random_costs(random, played)
            assert simulate(played, costs) == simulate_by_events(played, costs), seed
            assert violations(played) == [], seed


@pytest.mark.parametrize("first", range(0, 200, PER_TEST))
def test_kernel_equals_event_loop(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        check_seed(seed)


@pytest.mark.parametrize("first", range(0, 200, PER_TEST))
def test_kernel_equals_event_loop_on_braids(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        check_seed(seed, braided=True)


@pytest.mark.slow
def test_kernel_equals_event_loop_ten_thousand_times() -> None:
    for seed in range(1_000, 11_000):
        check_seed(seed)


@pytest.mark.parametrize("seed", range(10))
def test_makespans_equal_one_simulation_each(seed: int) -> None:
    random, schedule, costs = drawn(seed)
    costs = replace(costs, slices=None)
    played = lowered(random, schedule)
    batch = np.stack([random_costs(random, played).time_ns for _ in range(5)])
    expected = [simulate(played, replace(costs, time_ns=time_ns)).step_ns for time_ns in batch]
    assert makespans(played, costs, batch).tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_step_is_no_shorter_when_something_takes_longer(seed: int) -> None:
    random, schedule, costs = drawn(seed)
    played = lowered(random, schedule)
    more = random_costs(random, played)
    step_ns = simulate(played, costs).step_ns
    for longer in (
        replace(costs, time_ns=costs.time_ns + more.time_ns),
        replace(costs, latency_ns=costs.latency_ns + more.latency_ns),
        replace(costs, forward_bytes=costs.forward_bytes + more.forward_bytes),
        replace(costs, bytes_per_s=-(-costs.bytes_per_s // 2)),
        replace(
            costs, slices=costs.slices and replace(costs.slices, time_ns=costs.slices.time_ns * 2)
        ),
    ):
        assert simulate(played, longer).step_ns >= step_ns


@pytest.mark.parametrize("seed", range(20))
def test_messages_cost_no_less_than_needs_that_travel_on_their_own(seed: int) -> None:
    random, schedule, costs = drawn(seed)
    idle = replace(costs, time_ns=costs.time_ns.copy())
    idle.time_ns[:, :, [list(Kind).index(kind) for kind in (Kind.REDUCE, Kind.NORM)]] = 0
    stepped = lowered(random, schedule)
    assert simulate(stepped, idle).step_ns >= simulate(schedule, idle).step_ns
