"""Under a cap below the memory of 1F1B: what is alive in a run is what the plan says, or less."""

from typing import Any

from torch import nn

from evener.cost.table import CostTable
from evener.executor.live_bytes import LiveBytes
from evener.executor.train import Trainer
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable, peak_bytes
from evener.ir.passes import lower
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.planner.optpipe.ada_offload import AS_FITS, fill_memory
from evener.planner.optpipe.bench import new_bench
from evener.planner.optpipe.orders import orders_of, schedule_of
from evener.planner.optpipe.play import play
from evener.planner.optpipe.world import NEVER, world_of
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec.cluster import Link

NUM_WORKERS, CAP_BYTES = 4, 78

# Per microbatch of one row of float32: 28 bytes, and the loss 24 more; see test_offload.py. A cell
# that is recomputed keeps its input of three numbers.
SIZES = (28, 28, 28, 52)
TABLE = MemoryTable(
    {
        Resource.ACTIVATION: SIZES,
        Resource.OFFLOADED: SIZES,
        Resource.CHECKPOINT: (12,) * 4,
        Resource.WEIGHT_GRADIENT: (0,) * 4,
    },
    static_bytes=(0,) * NUM_WORKERS,
)


def layers() -> list[nn.Module]:
    return [
        layer
        for _ in range(NUM_WORKERS)
        for layer in (nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))
    ]


def brought_under(schedule: Schedule, copy_ns: int) -> Schedule:
    costs = CostTable.uniform(NUM_WORKERS, NUM_WORKERS, forward_ns=10, backward_ns=20)
    world = world_of(
        schedule,
        CostTable(**{**vars(costs), "memory": TABLE}),
        links=[Link(copy_ns, 0)] * NUM_WORKERS,
        groups=range(NUM_WORKERS),
        cap_bytes=[CAP_BYTES] * NUM_WORKERS,
        may=(1, 1, 1),
    )
    orders = orders_of(schedule)
    bench = new_bench(world, orders)
    assert fill_memory(world, orders, bench, AS_FITS)
    assert play(world, orders, bench, NEVER) < NEVER
    return schedule_of(world, orders, bench.played, bench.played_lengths)


def test_live_bytes_stay_under_the_cap(tiny: Any) -> None:
    plain = SCHEDULES["one_f_one_b"](ScheduleShape(NUM_WORKERS, 8))
    assert peak_bytes(lower(plain), TABLE) == (112, 84, 56, 52)
    for copy_ns, kind in ((10, Kind.OFFLOAD), (1000, Kind.R)):
        schedule = brought_under(plain, copy_ns)
        assert kind in schedule.kinds
        plan = tiny.plan(schedule, [(3 * stage, 3 * stage + 3) for stage in range(NUM_WORKERS)])
        predicted = peak_bytes(plan.lowered(), TABLE)
        assert max(predicted) <= CAP_BYTES

        def work(trainer: Trainer) -> LiveBytes:
            live = LiveBytes(trainer.engine)
            trainer.step({"inputs": tiny.rows(8)})
            return live

        measured = [live.peak_bytes for live in tiny.train(plan, layers, work)]
        # Of recomputed cells the inputs are kept elsewhere: LiveBytes does not see them.
        assert all(alive <= peak for alive, peak in zip(measured, predicted, strict=True))
        if kind is Kind.OFFLOAD:
            assert measured == list(predicted)
