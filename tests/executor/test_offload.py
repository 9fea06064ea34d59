"""Activations leave and come back: exact bytes that are really free, and the same gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evener.errors import EvenerError
from evener.executor.live_bytes import LiveBytes
from evener.executor.train import Trainer
from evener.ir.action import Kind
from evener.ir.memory import MemoryTable, memory_steps, peak_bytes
from evener.ir.passes import insert_offload, offloadable
from evener.ir.plan import Plan
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleShape


def layers(num_stages: int) -> list[nn.Module]:
    """Three per stage; each stage begins and ends three wide."""
    return [
        layer
        for _ in range(num_stages)
        for layer in (nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))
    ]


# One row of float32 per microbatch: the first Linear saves 3 numbers, Tanh and the second Linear
# the same 4: 28 bytes. The loss saves its 3 numbers in float64: 24 bytes.
STAGE, LOSS = 28, 24


def offloaded(name: str, shape: ScheduleShape) -> Schedule:
    """Every cell that lives long enough goes."""
    plain = SCHEDULES[name](shape)
    assert offloadable(plain)
    return insert_offload(plain, offloadable(plain))


def plan_of(tiny: Any, schedule: Schedule, **changes: Any) -> Plan:
    partition = [(3 * stage, 3 * stage + 3) for stage in range(schedule.num_stages)]
    return tiny.plan(schedule, partition).model_copy(update=changes)


def measure(tiny: Any, plan: Plan) -> list[LiveBytes]:
    def work(trainer: Trainer) -> LiveBytes:
        live = LiveBytes(trainer.engine)
        trainer.step({"inputs": tiny.rows(plan.schedule.num_microbatches)})
        return live

    return tiny.train(plan, lambda: layers(plan.schedule.num_stages), work)


def table(num_stages: int, leaves: int, num_workers: int) -> MemoryTable:
    """leaves: how many of the 28 bytes of a stage."""
    sizes = (*[STAGE] * (num_stages - 1), STAGE + LOSS)
    moved = (*[leaves] * (num_stages - 1), leaves + (LOSS if leaves == STAGE else 0))
    per_stage = {Resource.ACTIVATION: sizes, Resource.OFFLOADED: moved}
    return MemoryTable(per_stage, static_bytes=(0,) * num_workers)


def test_bytes_alive_after_each_action(tiny: Any) -> None:
    world = offloaded("gpipe", ScheduleShape(num_workers=1, num_microbatches=4))
    assert " ".join(map(str, world.workers[0])) == (
        "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0FREE0 0F2 0FREE1 0F3 0B3 0RELOAD1 0B2 0RELOAD0 0B1 0B0"
    )
    (live,) = measure(tiny, plan_of(tiny, world))
    # A microbatch holds 28 + 24 = 52 bytes. When B2 has ended, microbatch 1 is back, and so on.
    assert {str(action): alive // 52 for action, alive in live.after} == {
        "0F0": 1,
        "0F1": 2,
        "0FREE0": 1,
        "0F2": 2,
        "0FREE1": 1,
        "0F3": 2,
        "0B3": 1,
        "0B2": 1,
        "0B1": 1,
        "0B0": 0,
        "0STEP": 0,
    }
    assert live.peak_bytes == 2 * 52
    (plain,) = measure(tiny, plan_of(tiny, SCHEDULES["gpipe"](ScheduleShape(1, 4))))
    assert plain.peak_bytes == 4 * 52


@pytest.mark.parametrize("leaves", [STAGE, 12])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gpipe", ScheduleShape(2, 4)),
        ("one_f_one_b", ScheduleShape(4, 6)),
        ("interleaved_one_f_one_b", ScheduleShape(2, 4, 2)),
    ],
)
def test_what_is_alive_is_what_the_memory_table_says(
    tiny: Any, name: str, shape: ScheduleShape, leaves: int
) -> None:
    # Of 28 bytes all leave, or the 12 of the first Linear's input if 1 to 12 are asked for.
    world = offloaded(name, shape)
    asked = None if leaves == STAGE else (1,) * shape.num_stages
    plan = plan_of(tiny, world, offload_bytes=asked)
    lowered, sizes = plan.lowered(), table(shape.num_stages, leaves, shape.num_workers)
    steps = iter(memory_steps(lowered))
    for worker, live in enumerate(measure(tiny, plan)):
        held, expected = 0, []
        for action in lowered.workers[worker]:
            step = next(steps)
            held += sum(map(sizes.effect_bytes, (*step.at_start, *step.at_end)))
            expected.append((action, held))
        in_table = [pair for pair in expected if pair[0] in dict(live.after)]
        assert live.after == in_table
        assert live.peak_bytes == peak_bytes(lowered, sizes)[worker]
        plain = peak_bytes(SCHEDULES[name](shape), sizes)[worker]
        assert live.peak_bytes <= plain


class InPlace(nn.Module):
    """Doubles in place what the layer before has saved, one microbatch later."""

    held: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if InPlace.held is not None:
            with torch.no_grad():
                InPlace.held.mul_(2)
        InPlace.held = x
        return x * 1


def test_a_saved_tensor_that_is_changed_in_place_is_noticed(tiny: Any) -> None:
    world = offloaded("gpipe", ScheduleShape(num_workers=1, num_microbatches=4))
    InPlace.held = None
    plan = tiny.plan(world, [(0, 3)])
    with pytest.raises(EvenerError) as caught:
        tiny.train(
            plan,
            lambda: [nn.Linear(3, 4), nn.Tanh(), InPlace()],
            lambda trainer: trainer.step({"inputs": tiny.rows(4)}),
        )
    assert "0FREE0 (stage 0, microbatch 0): RuntimeError: one of the variables needed" in str(
        caught.value
    )


def test_without_offload_nothing_is_recorded(tiny: Any) -> None:
    plan = plan_of(tiny, SCHEDULES["gpipe"](ScheduleShape(1, 2)))

    def work(trainer: Trainer) -> None:
        engine = trainer.engine
        assert engine.offload is None
        assert engine._runs[Kind.F] == engine._forward
        assert Kind.FREE not in engine._runs

    tiny.train(plan, lambda: layers(1), work)
