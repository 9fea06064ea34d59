"""How many plans the joint search judges per second: printed by ``benchmarks.joint_search``."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.octopipe_rows import layer_ticks
from evener.compiled import uncounted
from evener.planner.joint.bench import TIME_NS, WEIGHT_NS, Bench, new_bench
from evener.planner.joint.judge import judge
from evener.planner.joint.starts import most_stages, starts
from evener.planner.joint.state import State
from evener.planner.joint.world import NEVER, ChainCosts, World, world_of_chain
from evener.schedules import PipelineTimes
from evener.schedules.adaptis_greedy import ALTERNATE
from evener.schedules.list_scheduler import ListWorld

_NUM_PLANS = 2000


@dataclass(frozen=True)
class Speed:
    """Whole plans per second of CPU: order found and simulated, nothing cut short.

    judged: on one core. together: on two cores, by two threads at a time. scheduled: by the list
    scheduler of ``evener.schedules`` on one core, call included.
    """

    judged: float
    together: float
    scheduled: float

    def __str__(self) -> str:
        return (
            "plans of 8 workers, 24 stages, 16 microbatches per second:"
            f" {self.judged:.0f} on one core, {self.together:.0f} on two;"
            f" by the list scheduler of the library {self.scheduled:.0f}"
        )


def plans_per_second() -> Speed:
    """8 workers, 24 stages, 16 microbatches; the best of five."""
    times = [ticks for _, ticks in layer_ticks("nemotron-nano-v2-9B")]
    world = world_of_chain(ChainCosts(times), num_workers=8, num_microbatches=16)
    state = next(each for each in starts(world) if each.num_stages[0] == 24)
    benches = [new_bench(world, most_stages(world)) for _ in range(2)]
    _judge_often(world, state, benches[0], 1)
    others = _list_world(state, benches[0])
    others.run(ALTERNATE)
    alone_s, both_s, others_s = (
        min(map(_seconds, [call] * 5))
        for call in (
            lambda: _judge_often(world, state, benches[0], _NUM_PLANS),
            lambda: _judge_together(world, state, benches),
            lambda: others.run(ALTERNATE),
        )
    )
    return Speed(_NUM_PLANS / alone_s, 2 * _NUM_PLANS / (both_s / 2), 1 / others_s)


def _list_world(state: State, bench: Bench) -> ListWorld:
    """The same stages, as judged last."""
    rank = bench.rank[:24]
    stages = PipelineTimes(
        tuple(bench.slots[2 * rank, TIME_NS].tolist()),
        tuple(bench.slots[2 * rank + 1, TIME_NS].tolist()),
        tuple(bench.ranks[rank, WEIGHT_NS].tolist()),
        forward_message_ns=(0,) * 23,
        backward_message_ns=(0,) * 23,
        activation_bytes=(1,) * 24,
        weight_gradient_bytes=(1,) * 24,
    )
    return ListWorld(stages, num_workers=8, num_microbatches=16, workers=state.worker[:24].tolist())


@uncounted
def _judge_often(world: World, state: State, bench: Bench, count: int) -> None:
    for _ in range(count):
        judge(world, state, bench, NEVER)


def _judge_together(world: World, state: State, benches: list[Bench]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for bench in benches:
            pool.submit(_judge_often, world, state, bench, _NUM_PLANS)


def _seconds(call: Callable[[], object]) -> float:
    """CPU time of all threads."""
    begin = time.process_time()
    call()
    return time.process_time() - begin
