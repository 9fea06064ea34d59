"""A schedule and its costs from a few flags, without any file."""

import argparse
from dataclasses import dataclass

from evener.cli.inputs import amount, whole_number
from evener.cost.table import CostTable
from evener.errors import ScheduleError, UsageError
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleShape, split_backward

# Times on the command line have any unit; inside they are whole numbers of a millionth of it.
TICKS = 1_000_000
_MOST_ACTIONS = 10_000_000


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Flags of a regular schedule with equal stages."""
    group = parser.add_argument_group(
        "a schedule without files",
        "times are numbers in any one unit; the answer is in the same unit",
    )
    group.add_argument("--schedule", metavar="NAME", help=", ".join(SCHEDULES))
    group.add_argument("--stages", metavar="N", help="stages in all (default 4)")
    group.add_argument("--workers", metavar="N", help="default: one per stage")
    group.add_argument("--microbatches", metavar="N", help="default 8")
    group.add_argument("--forward", metavar="T", help="time of F (default 1)")
    group.add_argument("--backward", metavar="T", help="time of B (default 2; I and W share it)")
    group.add_argument("--weight", metavar="T", help="part of B that is W (default: half)")
    group.add_argument("--latency", metavar="T", help="of every message (default 0)")
    group.add_argument(
        "--split", action="store_true", help="write every B as I with its W right behind it"
    )


SHAPE_FLAGS = (
    "stages", "workers", "microbatches", "forward", "backward", "weight", "latency", "split",
)  # fmt: skip


@dataclass(frozen=True)
class FlagWorld:
    """What the flags describe."""

    schedule: Schedule
    costs: CostTable


def world_from_flags(options: argparse.Namespace, *, ticks: int = TICKS) -> FlagWorld:
    """The schedule with equal stages that the flags ask for.

    ticks: nanoseconds of one unit of the flags' times.

    Raises UsageError or ScheduleError that names the flag and what would be possible.
    """
    entry = SCHEDULES.get(options.schedule)
    if entry is None:
        raise UsageError(_unknown_schedule(options.schedule))
    num_stages = whole_number(options.stages or "4", "--stages")
    num_workers = whole_number(options.workers or str(num_stages), "--workers")
    num_microbatches = whole_number(options.microbatches or "8", "--microbatches")
    if num_stages % num_workers:
        raise UsageError(_uneven(num_stages, num_workers))
    if num_stages * num_microbatches > _MOST_ACTIONS:
        raise UsageError(_too_large(num_stages, num_microbatches))
    shape = ScheduleShape(num_workers, num_microbatches, num_stages // num_workers)
    reason = entry.unsupported(shape)
    if reason is not None:
        raise ScheduleError(f"{entry.name} cannot have this shape", [f"{entry.name} {reason}"])
    schedule = entry(shape)
    backward = amount(options.backward or "2", "--backward")
    weight = amount(options.weight, "--weight") if options.weight else backward / 2
    if weight > backward:
        raise UsageError(f"--weight {weight} is a part of --backward {backward}; give less")
    costs = CostTable.uniform(
        num_workers,
        num_stages,
        forward_ns=int(ticks * amount(options.forward or "1", "--forward")),
        input_ns=int(ticks * (backward - weight)),
        weight_ns=int(ticks * weight),
        latency_ns=int(ticks * amount(options.latency or "0", "--latency")),
    )
    return FlagWorld(split_backward(schedule) if options.split else schedule, costs)


def in_unit(ticks: int) -> int | float:
    """A time in the unit of the flags; whole where it is."""
    return ticks // TICKS if ticks % TICKS == 0 else ticks / TICKS


def _unknown_schedule(name: str) -> str:
    return f'there is no schedule "{name}"; schedules: {", ".join(SCHEDULES)}'


def _uneven(num_stages: int, num_workers: int) -> str:
    return (
        f"--stages {num_stages} is not a multiple of --workers {num_workers}; give each worker the"
        " same number of stages"
    )


def _too_large(num_stages: int, num_microbatches: int) -> str:
    return (
        f"--stages {num_stages} times --microbatches {num_microbatches} is more than"
        f" {_MOST_ACTIONS:,} forwards; give smaller numbers"
    )
