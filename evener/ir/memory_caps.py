"""Say which workers hold more than they may, where, and what it is made of."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from evener.ir.action import Action
from evener.ir.memory import MemoryStep, MemoryTable, memory_steps, peak_bytes
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.units import format_bytes


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
                f"{_size(cap_bytes[worker])}: {made_of}. Ways out: fewer microbatches in flight, "
                "recompute, or fewer layers on this worker"
            )
    return texts


def _made_of(
    steps: Iterable[tuple[Action, MemoryStep]], table: MemoryTable, worker: int, peak: int
) -> str:
    """The peak as a sum, and the action at which the worker first holds it."""
    static = table.static_bytes[worker]
    text = f"static {_size(static)}"
    held: Counter[tuple[int, Resource]] = Counter()
    total = static
    for action, step in steps:
        for effects in step:
            if total == peak:
                break
            for stage, resource, sign in effects:
                held[stage, resource] += sign
                total += sign * table.size_bytes(resource, stage)
            if total == peak:
                text += "".join(_shares(held, table)) + f" at {action}"
    return text


def _shares(held: Counter[tuple[int, Resource]], table: MemoryTable) -> Iterable[str]:
    for (stage, resource), count in sorted(held.items(), key=lambda item: item[0][0]):
        size = table.size_bytes(resource, stage)
        if count * size:
            yield f" + stage {stage} {resource.value} {count} x {_size(size)}"


def _size(num_bytes: int) -> str:
    return format_bytes(num_bytes, digits=4)
