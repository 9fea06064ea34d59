"""A searched plan, with unequal numbers of stages per worker, trains like a single process."""

import pytest

from evener.executor.verify import verify
from evener.ir.schedule import Schedule
from evener.planner.joint.bench import new_bench
from evener.planner.joint.judge import judge
from evener.planner.joint.orders import orders_of, schedule_of
from evener.planner.joint.starts import most_stages, state_of
from evener.planner.joint.world import NEVER, ChainCosts, world_of_chain

pytestmark = pytest.mark.dist

# 8 stages on 4 workers: three, two, two and one, as AdaPtis has 7, 6, 6 and 5 of 24.
WORKERS = [0, 1, 2, 3, 2, 0, 1, 0]


def irregular() -> Schedule:
    """The judge's order for layers of which the later ones take longer, one of them per stage."""
    times = [(2 + layer, 3 + layer, 1 + layer % 3) for layer in range(8)]
    world = world_of_chain(ChainCosts(times, latency_ns=1), num_workers=4, num_microbatches=6)
    partition = tuple((layer, layer + 1) for layer in range(8))
    state = state_of(world, partition, WORKERS)
    state.whole[1] = 1  # one stage whose backward is whole
    bench = new_bench(world, most_stages(world))
    assert judge(world, state, bench, NEVER) < NEVER
    return schedule_of(orders_of(world, state, bench), 6)


@pytest.mark.timeout(60)
def test_parity() -> None:
    schedule = irregular()
    assert [len(stages) for stages in schedule.stages_of_worker] == [3, 2, 2, 1]
    assert verify(schedule).holds
