"""A schedule and its costs from a few flags, without any file."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from evener.cli.inputs import amount, require_name, whole_number
from evener.cost.table import CostTable
from evener.errors import ScheduleError, UsageError
from evener.export import read_schedule
from evener.ir.schedule import Schedule
from evener.schedules import (
    SCHEDULES,
    PipelineTimes,
    ScheduleShape,
    StageTimes,
    split_backward,
)

# Times on the command line have any unit; inside they are whole numbers of a millionth of it.
TICKS = 1_000_000
_MOST_FORWARDS = 1_000_000
_MOST_STAGES = 4096
_MOST_PAIRS = 2**20


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Flags of a regular schedule with equal stages."""
    group = parser.add_argument_group(
        "a schedule without files",
        "times are numbers in any one unit; the answer is in the same unit, but in files of"
        " timelines it is a millisecond",
    )
    group.add_argument(
        "--schedule",
        metavar="NAME",
        help=f"{', '.join(SCHEDULES)}; or a file of torch's (.csv) or ours (.txt)",
    )
    group.add_argument("--stages", metavar="N", help="stages in all (default 4)")
    group.add_argument("--workers", metavar="N", help="default: one per stage")
    add_times(group)
    group.add_argument(
        "--split", action="store_true", help="write every B as I with its W right behind it"
    )


def add_times(group: argparse._ArgumentGroup) -> None:
    """Flags for how many microbatches there are and how long each takes."""
    group.add_argument("--microbatches", metavar="N", help="default 8")
    group.add_argument("--forward", metavar="T", help="time of F (default 1)")
    group.add_argument("--backward", metavar="T", help="time of B (default 2; I and W share it)")
    group.add_argument("--weight", metavar="T", help="part of B that is W (default: half)")
    group.add_argument("--latency", metavar="T", help="of every message (default 0)")


SHAPE_FLAGS = (
    "stages", "workers", "microbatches", "forward", "backward", "weight", "latency", "split",
)  # fmt: skip
SCHEDULE_SUFFIXES = (".csv", ".txt")
_FILES = ("plan", "profile", "cluster")


@dataclass(frozen=True)
class FlagWorld:
    """What the flags describe."""

    schedule: Schedule
    costs: CostTable


def is_from_flags(options: argparse.Namespace) -> bool:
    """Whether a schedule was given by flags rather than by a plan and its files.

    Raises UsageError if it was given in both ways, in half a way or not at all.
    """
    files = [name for name in _FILES if getattr(options, name) is not None]
    flags = [f"--{name}" for name in SHAPE_FLAGS if getattr(options, name) not in (None, False)]
    if options.schedule is not None:
        if files:
            raise UsageError(_both(files))
        return True
    if flags:
        raise UsageError(f"{' and '.join(flags)}: only for --schedule NAME; add it, or leave out")
    missing = [name for name in _FILES if name not in files]
    if missing:
        raise UsageError(_incomplete(missing, options.verb))
    return False


def world_from_flags(options: argparse.Namespace, *, ticks: int = TICKS) -> FlagWorld:
    """The schedule that the flags ask for, with equal stages.

    ticks: nanoseconds of one unit of the flags' times.

    Raises UsageError or ScheduleError that names the flag and what would be possible.
    """
    num_forwards, make = _chosen(options)
    times, latency_ns = times_from_flags(options, num_forwards=num_forwards, ticks=ticks)
    schedule = make(times, latency_ns)
    costs = CostTable.uniform(
        schedule.num_workers,
        schedule.num_stages,
        forward_ns=times.forward_ns,
        input_ns=times.input_grad_ns,
        weight_ns=times.weight_grad_ns,
        latency_ns=latency_ns,
    )
    return FlagWorld(split_backward(schedule) if options.split else schedule, costs)


def _chosen(options: argparse.Namespace) -> tuple[int, Callable[[StageTimes, int], Schedule]]:
    """How many forwards a step has, and how to make its schedule for times and a latency."""
    if Path(options.schedule).suffix in SCHEDULE_SUFFIXES:
        given = [name for name in ("stages", "workers", "microbatches") if getattr(options, name)]
        if given:
            raise UsageError(_sizes_of_file(options.schedule, given))
        schedule = read_schedule(options.schedule)
        return schedule.num_stages * schedule.num_microbatches, lambda times, latency_ns: schedule
    require_name(options.schedule, SCHEDULES, "schedule")
    entry, shape = SCHEDULES[options.schedule], _shape(options)
    reason = entry.unsupported(shape)
    if reason is not None:
        raise ScheduleError(f"{entry.name} cannot have this shape", [f"{entry.name} {reason}"])

    def make(times: StageTimes, latency_ns: int) -> Schedule:
        equal = PipelineTimes.equal(shape.num_stages, times, message_ns=latency_ns)
        return entry(shape, equal)

    return shape.num_stages * shape.num_microbatches, make


def times_from_flags(
    options: argparse.Namespace, *, num_forwards: int, ticks: int
) -> tuple[StageTimes, int]:
    """Times of one microbatch, and of the latency of a message.

    num_forwards: of one step. ticks: nanoseconds of one unit of the flags' times.

    Raises UsageError that names the flag, or if a whole step is too long to be counted.
    """
    backward = _amount(options, "backward", "2")
    weight = _amount(options, "weight", str(backward / 2))
    if weight > backward:
        raise UsageError(f"--weight {weight} is a part of --backward {backward}; give less")
    times = StageTimes(
        int(ticks * _amount(options, "forward", "1")),
        int(ticks * (backward - weight)),
        int(ticks * weight),
    )
    latency_ns = int(ticks * _amount(options, "latency", "0"))
    longest_ns = num_forwards * (times.forward_ns + times.backward_ns + 2 * latency_ns)
    if longest_ns >= 2**63:
        raise UsageError(_too_long(2**63 // ticks))
    return times, latency_ns


def _shape(options: argparse.Namespace) -> ScheduleShape:
    num_stages = number_from_flag(options, "stages", "4")
    num_workers = number_from_flag(options, "workers", str(num_stages))
    num_microbatches = number_from_flag(options, "microbatches", "8")
    if num_stages % num_workers:
        raise UsageError(_uneven(num_stages, num_workers))
    if num_stages > _MOST_STAGES or num_stages * num_workers > _MOST_PAIRS:
        raise UsageError(_too_wide(num_stages, num_workers))
    if num_stages * num_microbatches > _MOST_FORWARDS:
        raise UsageError(_too_large(num_stages, num_microbatches))
    return ScheduleShape(num_workers, num_microbatches, num_stages // num_workers)


def in_unit(ticks: int, *, per_unit: int = TICKS) -> int | float:
    """A time in the unit of the flags; whole where it is."""
    return ticks // per_unit if ticks % per_unit == 0 else ticks / per_unit


def number_from_flag(options: argparse.Namespace, name: str, default: str) -> int:
    """The whole number that a flag was given, or its default."""
    given = getattr(options, name)
    return whole_number(default if given is None else given, f"--{name}")


def _amount(options: argparse.Namespace, name: str, default: str) -> Decimal:
    given = getattr(options, name)
    return amount(default if given is None else given, f"--{name}")


def _both(files: list[str]) -> str:
    given = " and ".join("PLAN" if name == "plan" else f"--{name}" for name in files)
    return f"--schedule stands alone; leave {given} out, or leave --schedule out"


def _incomplete(missing: list[str], verb: str) -> str:
    whole = f"evener {verb} PLAN --profile FILE --cluster FILE"
    if len(missing) == len(_FILES):
        return f"there is nothing to {verb}; give `{whole}`, or --schedule NAME with its flags"
    names = " and ".join("PLAN" if name == "plan" else f"--{name}" for name in missing)
    return f"a plan alone is not enough; add {names}: `{whole}`"


def _uneven(num_stages: int, num_workers: int) -> str:
    return (
        f"--stages {num_stages} is not a multiple of --workers {num_workers}; give each worker the"
        " same number of stages"
    )


def _too_wide(num_stages: int, num_workers: int) -> str:
    return (
        f"--stages {num_stages} on --workers {num_workers} are too many; at most {_MOST_STAGES:,}"
        f" stages, and {_MOST_PAIRS:,} pairs of a stage and a worker, can be given"
    )


def _too_large(num_stages: int, num_microbatches: int) -> str:
    return (
        f"--stages {num_stages} times --microbatches {num_microbatches} is more than"
        f" {_MOST_FORWARDS:,} forwards; give smaller numbers"
    )


def _too_long(most: int) -> str:
    return (
        f"all times of a step together are more than {most:,} units; give shorter times, or fewer"
        " stages and microbatches"
    )


def _sizes_of_file(file: str, flags: list[str]) -> str:
    return (
        f"--{' and --'.join(flags)}: {file} says itself how large the schedule is; leave"
        f" {'it' if len(flags) == 1 else 'them'} out"
    )
