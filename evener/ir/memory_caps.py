"""Say which workers hold more than they may, where, and what it is made of."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

from evener.ir.action import Action, Kind
from evener.ir.memory import MemoryStep, MemoryTable, memory_steps, peak_bytes
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.units import format_bytes

Held: TypeAlias = tuple[int, Resource, int]
"""(stage, resource, bytes): the slices of a microbatch may differ in size."""


def over_caps(schedule: Schedule, table: MemoryTable, cap_bytes: Sequence[int]) -> list[str]:
    """One sentence per worker whose peak exceeds its cap."""
    assert len(cap_bytes) == schedule.num_workers, "one cap per worker"
    peaks = peak_bytes(schedule, table)
    flat = iter(memory_steps(schedule))
    texts = []
    for worker, actions in enumerate(schedule.workers):
        steps = list(islice(flat, len(actions)))
        if peaks[worker] > cap_bytes[worker]:
            made_of = _made_of(zip(actions, steps, strict=True), table, worker, peaks[worker])
            texts.append(
                f"worker {worker} holds {_size(peaks[worker])}, its cap is "
                f"{_size(cap_bytes[worker])}: {made_of}. "
                f"{_ways_out(schedule, table.static_bytes[worker] > cap_bytes[worker])}"
            )
    return texts


def _ways_out(schedule: Schedule, is_static_too_much: bool) -> str:
    if is_static_too_much:
        return (
            "The static part alone is too much, so neither recompute nor offload helps. Way out: "
            "fewer layers on this worker"
        )
    besides = ", besides the offload that is there" if Kind.OFFLOAD in schedule.kinds else ""
    return (
        f"Ways out{besides}: fewer microbatches in flight, recompute, or fewer layers on this "
        "worker"
    )


def _made_of(
    steps: Iterable[tuple[Action, MemoryStep]], table: MemoryTable, worker: int, peak: int
) -> str:
    """The peak as a sum, and the action at which the worker first holds it."""
    static = table.static_bytes[worker]
    text = f"static {_size(static)}"
    held: Counter[Held] = Counter()
    total = static
    for action, step in steps:
        for effects in step:
            if total == peak:
                break
            for effect in effects:
                size = table.size_bytes(effect.resource, effect.stage, effect.slice)
                held[effect.stage, effect.resource, size] += effect.sign
                total += effect.sign * size
            if total == peak:
                text += "".join(_shares(held)) + f" at {action}"
    return text


def _shares(held: Counter[Held]) -> Iterable[str]:
    for (stage, resource, size), count in sorted(held.items(), key=lambda item: item[0][0]):
        if count * size:
            yield f" + stage {stage} {resource.value} {count} x {_size(size)}"


def _size(num_bytes: int) -> str:
    return format_bytes(num_bytes, digits=4)
