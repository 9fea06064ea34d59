"""How fast the simulator is: ``python -m benchmarks.simulator_speed``.

For 1F1B on 16 workers with 256 microbatches and for interleaved 1F1B with 4 chunks per worker,
compute-only and with messages, one line each with the best of several rounds, all in this process:

- kernel: times, memory and bubbles of prepared arrays, alone;
- simulate: the whole public call, costs to timeline, for a schedule that was simulated before;
- makespans: step times alone, for a batch of action times;
- events: the plain-Python event loop of the same model, without finding out who waits for whom;
- cold: to generate the schedule (and lower it), and to prepare its arrays, once per schedule.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evener.cost.table import CostTable
from evener.interp.program import compile_program
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import kernel, makespans, simulate
from evener.sim.engine import price_classes, result_for
from evener.sim.layout import layout_of
from evener.sim.reference import EventLoop

NUM_WORKERS, NUM_MICROBATCHES = 16, 256
# Many short rounds: the best one has caches for itself even on a busy machine.
ROUNDS, CALLS, BATCH = 200, 20, 20

CASES = [
    ("one_f_one_b", 1, False),
    ("one_f_one_b", 1, True),
    ("interleaved_one_f_one_b", 4, False),
    ("interleaved_one_f_one_b", 4, True),
]


@dataclass(frozen=True)
class Speed:
    """What was measured of one schedule. Seconds for one step of ``num_actions`` actions."""

    num_actions: int
    kernel_s: float
    simulate_s: float
    makespan_s: float
    events_s: float
    generate_s: float
    prepare_s: float


def timed(call: Callable[[], object]) -> float:
    """Seconds of CPU time of this thread, which other processes hardly change."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def best(call: Callable[[], object], *, calls: int = CALLS) -> float:
    """Seconds of one call: the best round, each the mean of many calls."""

    def repeat() -> None:
        for _ in range(calls):
            call()

    return min(timed(repeat) / calls for _ in range(ROUNDS))


def measure(name: str, chunks: int, *, messages: bool) -> Speed:
    shape = ScheduleShape(NUM_WORKERS, NUM_MICROBATCHES, chunks)
    made: list[Schedule] = []

    def generate() -> None:
        schedule = SCHEDULES[name](shape)
        made.append(lower(schedule) if messages else schedule)

    generate_s = timed(generate)
    (schedule,) = made
    costs = CostTable.uniform(
        NUM_WORKERS, shape.num_stages, forward_ns=10, latency_ns=5, activation_bytes=3
    )
    prepare_s = timed(lambda: layout_of(compile_program(schedule)))

    layout = layout_of(compile_program(schedule))
    prices, result = price_classes(layout, schedule, costs), result_for(layout)
    random = np.random.default_rng(0)
    batch = random.integers(10, 30, size=(BATCH, *costs.time_ns.shape))

    loops = [EventLoop(schedule, costs) for _ in range(3)]
    events_s = min(timed(loop.run) for loop in loops)
    expected = loops[0]
    assert simulate(schedule, costs).end_ns.tolist() == expected.end_ns
    return Speed(
        num_actions=schedule.num_actions,
        kernel_s=best(lambda: kernel.run(layout.order, layout.classes, prices, result)),
        simulate_s=best(lambda: simulate(schedule, costs)),
        makespan_s=best(lambda: makespans(schedule, costs, batch), calls=1) / BATCH,
        events_s=events_s,
        generate_s=generate_s,
        prepare_s=prepare_s,
    )


def main() -> None:
    smallest = SCHEDULES["gpipe"](ScheduleShape(1, 1))
    first_s = timed(lambda: simulate(smallest, CostTable.uniform(1, 1)))
    print(f"first simulation of this process (loads or compiles the kernel): {first_s:.2f} s")
    print(
        f"{NUM_WORKERS} workers, {NUM_MICROBATCHES} microbatches; "
        "million actions/s on one core, and time of one step"
    )
    for name, chunks, messages in CASES:
        speed = measure(name, chunks, messages=messages)
        print(f"\n{name}, {speed.num_actions} actions{' with messages' if messages else ''}")
        for label, seconds in (
            ("kernel with memory and bubbles", speed.kernel_s),
            ("makespans, per step", speed.makespan_s),
            ("simulate(), whole call", speed.simulate_s),
            ("plain-Python event loop", speed.events_s),
        ):
            rate = speed.num_actions / seconds / 1e6
            print(f"  {label:32} {rate:8.2f} M/s {seconds * 1e6:12.1f} us")
        ratio = speed.events_s / speed.kernel_s
        print(f"  the kernel is {ratio:.0f} times as fast as the event loop")
        cold = f"generate {speed.generate_s * 1e3:.1f} ms, prepare {speed.prepare_s * 1e3:.1f} ms"
        print(f"  cold, once per schedule: {cold}")


if __name__ == "__main__":
    main()
