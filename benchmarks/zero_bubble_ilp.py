"""Orders of F, I and W beside the optimum: ``python -m benchmarks.zero_bubble_ilp``.

One stage per worker, split backwards, times that differ from stage to stage: what zero-bubble
pipelines solve as an integer program.  Instances are drawn as in the public repository of Adaptra
(PipeMorph), which compares its heuristic with that program: F, I and W of all stages around three
numbers of [b, 2b), b one of 10, 15, 20, 25, 30, with a normal deviation of 2 from stage to stage;
messages between 0 and 20; the whole step is what counts.  Memory is not limited there; ``--held 1``
limits every worker to what the first worker of 1F1B holds (of F half stays until W has ended, as
the public zero-bubble scheduler has it by default), ``--held 2`` to twice that.

For each instance: the best bound; how far above it end our order, the automatic zero-bubble
schedule, and Adaptra's; and how long ours took.  Ours is the best of the greedy orders, annealed,
then solved by CP-SAT.  A bound that is reached says that the order is optimal.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.planner.exact.solver import cp_sat
from evener.planner.exact.timetable import Timetable
from evener.planner.exact.windows import Effort, Improved, improve_orders, one_machine_ns
from evener.planner.joint.cooling import Cooling, cool_orders
from evener.planner.joint.orders import Orders, holds_too_much, new_deck, play
from evener.planner.joint.world import NEVER, ChainCosts, World, world_of_chain
from evener.schedules import SCHEDULES, PipelineTimes, ScheduleShape
from evener.schedules.zb_automatic import automatic_zero_bubble

SIZES = ((4, 8), (4, 12), (8, 16))
"""Workers and microbatches."""

BASES = (10, 15, 20, 25, 30)

ACTIVATION, WEIGHT_GRADIENT = 2, 1
"""Units held from F until I, and from I until W."""

NUM_ACTIONS = 40_000_000
"""Scheduled by the annealing: about a second."""

ROW = {Kind.F: 0, Kind.I: 1, Kind.W: 2}


@dataclass(frozen=True)
class Instance:
    """times: per stage (F, I, W). message: between neighbours. cap: units; None means no limit."""

    times: tuple[tuple[int, int, int], ...]
    message: int
    num_microbatches: int
    cap: int | None

    @property
    def shape(self) -> ScheduleShape:
        return ScheduleShape(len(self.times), self.num_microbatches)

    @property
    def pipeline_times(self) -> PipelineTimes:
        p = len(self.times)
        return PipelineTimes(
            *zip(*self.times, strict=True),
            forward_message_ns=(self.message,) * (p - 1),
            backward_message_ns=(self.message,) * (p - 1),
            activation_bytes=(ACTIVATION,) * p,
            weight_gradient_bytes=(WEIGHT_GRADIENT,) * p,
            cap_bytes=None if self.cap is None else (self.cap,) * p,
        )

    @property
    def world(self) -> World:
        chain = ChainCosts(
            self.times,
            latency_ns=self.message,
            held_bytes=[(ACTIVATION, WEIGHT_GRADIENT)] * len(self.times),
            cap_bytes=self.cap,
        )
        return world_of_chain(
            chain, num_workers=len(self.times), num_microbatches=self.num_microbatches
        )


def instances(
    num_stages: int, num_microbatches: int, *, count: int, held: int | None, seed: int
) -> Iterator[Instance]:
    random = np.random.default_rng([seed, num_stages, num_microbatches])
    for number in range(count):
        base = BASES[number % len(BASES)]
        message = int(np.ceil(random.uniform(0, 20)))
        means = random.integers(base, 2 * base, 3)
        times = np.ceil(means + random.normal(0, 2, (num_stages, 3))).astype(int)
        cap = None if held is None else held * ACTIVATION * num_stages
        yield Instance(tuple(map(tuple, times.tolist())), message, num_microbatches, cap)


def greedy_orders(instance: Instance) -> dict[str, Orders]:
    """By name, those that keep the cap."""
    shape, times = instance.shape, instance.pipeline_times
    num_held = shape.num_microbatches
    if instance.cap is not None:
        num_held = instance.cap // ACTIVATION
    schedules = {"automatic": automatic_zero_bubble("automatic", shape, times, num_held=num_held)}
    for name in ("adaptra", "zb_h1", "zb_h2"):
        try:
            schedules[name] = SCHEDULES[name](shape, times)
        except ScheduleError:  # zb_h2 wants more microbatches
            continue
    orders = {name: _orders(schedule) for name, schedule in schedules.items()}
    world = instance.world
    return {name: each for name, each in orders.items() if not holds_too_much(world, each)}


def _orders(schedule: Schedule) -> Orders:
    count = schedule.num_stages
    rows = [[3 * each.stage + ROW[each.kind] for each in row] for row in schedule.workers]
    stages, nothing = np.arange(count), np.zeros(count, dtype=np.int64)
    return Orders(
        np.arange(count + 1), stages, nothing, np.array(rows), np.array([*map(len, rows)])
    )


def played(world: World, orders: Orders) -> int:
    return int(play(world, orders, new_deck(world, orders), NEVER))


def solved(world: World, orders: Orders, *, seconds: float) -> Improved:
    """Annealed, then ordered by CP-SAT, unless there is nothing to gain; ends on time."""
    end_s = time.monotonic() + seconds

    def late(*_: object) -> bool:
        return time.monotonic() > end_s

    step = played(world, orders)
    if step > one_machine_ns(Timetable(world, orders)):
        cooling = Cooling(0.01, 0.0003, NUM_ACTIONS, (0,))
        orders, _ = cool_orders(world, orders, step, cooling, late)
    return improve_orders(world, orders, stop=late, effort=Effort(whole_s=0.8 * seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10, help="instances of each size")
    parser.add_argument("--held", type=int, help="memory in units of the first worker of 1F1B")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cp_sat()  # loading it, and what numba compiles, is no part of the search
    print(" p  m  F, I, W of worker 0  message  bound  ours    gap  automatic  adaptra     s")
    for num_workers, num_microbatches in SIZES:
        gaps: list[tuple[float, ...]] = []
        for instance in instances(
            num_workers,
            num_microbatches,
            count=options.count,
            held=options.held,
            seed=options.seed,
        ):
            gaps.append(_row(instance, options.seconds))
        means = "  ".join(f"{100 * mean:.2f} %" for mean in np.mean(gaps, axis=0))
        print(f"{num_workers} x {num_microbatches}: mean gap of ours, automatic, adaptra: {means}")
        print(f"worst of ours {100 * max(gap[0] for gap in gaps):.2f} %", flush=True)


def _row(instance: Instance, seconds: float) -> tuple[float, float, float]:
    """Print it; the three gaps."""
    world, greedy = instance.world, greedy_orders(instance)
    steps = {name: played(world, orders) for name, orders in greedy.items()}
    begin_s = time.monotonic()
    found = solved(world, greedy[min(steps, key=steps.__getitem__)], seconds=seconds)
    took_s = time.monotonic() - begin_s
    gaps = tuple(
        step / found.least_ns - 1 for step in (found.step_ns, steps["automatic"], steps["adaptra"])
    )
    print(
        f"{len(instance.times):2} {instance.num_microbatches:2}  {instance.times[0]!s:20}"
        f" {instance.message:7} {found.least_ns:6} {found.step_ns:5} {gaps[0]:6.2%}"
        f" {gaps[1]:10.2%} {gaps[2]:8.2%} {took_s:5.1f}",
        flush=True,
    )
    return gaps[0], gaps[1], gaps[2]


if __name__ == "__main__":
    main()
