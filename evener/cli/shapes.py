"""A schedule and its costs from a few flags, without any file."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from evener.cli.inputs import amount, require_name, whole_number
from evener.cost.table import CostTable
from evener.errors import ScheduleError, UsageError
from evener.export import read_schedule
from evener.ir.schedule import Schedule, side_work_names
from evener.schedules import (
    SCHEDULES,
    PipelineTimes,
    ScheduleShape,
    StageTimes,
    split_backward,
)

# Times on the command line have any unit. Inside they are whole numbers of a millionth of it, or of
# what smaller part it takes to be exact.
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
    group.add_argument(
        "--slices", metavar="N", help="token slices that share a microbatch's times (default 1)"
    )
    group.add_argument(
        "--updates",
        metavar="N",
        help="updates between two flushes, each of so many microbatches, of asynchronous schedules"
        " (default 1)",
    )
    group.add_argument("--forward", metavar="T", help="time of F (default 1)")
    group.add_argument("--backward", metavar="T", help="time of B (default 2; I and W share it)")
    group.add_argument("--weight", metavar="T", help="part of B that is W (default: half)")
    group.add_argument("--latency", metavar="T", help="of every message (default 0)")


SHAPE_FLAGS = (
    "stages", "workers", "microbatches", "slices", "updates", "forward", "backward", "weight",
    "latency",
    "split",
)  # fmt: skip
SCHEDULE_SUFFIXES = (".csv", ".txt")
_FILES = ("plan", "profile", "cluster")


@dataclass(frozen=True)
class FlagWorld:
    """What the flags describe; ticks: nanoseconds of the costs for one unit of the flags."""

    schedule: Schedule
    costs: CostTable
    ticks: Fraction


@dataclass(frozen=True)
class FlagTimes:
    """Times of one microbatch and the latency of a message, in ticks; ticks: those of one unit."""

    stage: StageTimes
    latency: int
    ticks: Fraction


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


def world_from_flags(options: argparse.Namespace, *, unit_ns: Fraction | None = None) -> FlagWorld:
    """The schedule that the flags ask for, with equal stages.

    unit_ns: of the flags' times, where they are real ones.

    Raises UsageError or ScheduleError that names the flag and what would be possible.
    """
    num_forwards, num_slices, make = _chosen(options)
    found = times_from_flags(options, num_forwards=num_forwards, parts=num_slices, unit_ns=unit_ns)
    times, latency_ns = found.stage.part(num_slices), found.latency
    schedule = make(times, latency_ns)
    if pieces := side_work_names([schedule]):
        raise UsageError(_side_work(options.schedule, pieces))
    costs = CostTable.uniform(
        schedule.num_workers,
        schedule.num_stages,
        forward_ns=times.forward_ns,
        input_ns=times.input_grad_ns,
        weight_ns=times.weight_grad_ns,
        latency_ns=latency_ns,
    )
    return FlagWorld(split_backward(schedule) if options.split else schedule, costs, found.ticks)


def _chosen(
    options: argparse.Namespace,
) -> tuple[int, int, Callable[[StageTimes, int], Schedule]]:
    """How many forwards a step has, and slices a microbatch; and how to make the schedule."""
    if Path(options.schedule).suffix in SCHEDULE_SUFFIXES:
        sizes = ("stages", "workers", "microbatches", "slices", "updates")
        given = [name for name in sizes if getattr(options, name)]
        if given:
            raise UsageError(_sizes_of_file(options.schedule, given))
        schedule = read_schedule(options.schedule)
        num_forwards = schedule.num_stages * schedule.num_microbatches * schedule.num_slices
        return num_forwards, schedule.num_slices, lambda times, latency_ns: schedule
    require_name(options.schedule, SCHEDULES, "schedule")
    entry, shape = SCHEDULES[options.schedule], _shape(options)
    reason = entry.unsupported(shape)
    if reason is not None:
        raise ScheduleError(f"{entry.name} cannot have this shape", [f"{entry.name} {reason}"])

    def make(times: StageTimes, latency_ns: int) -> Schedule:
        equal = PipelineTimes.equal(shape.num_stages, times, message_ns=latency_ns)
        return entry(shape, equal)

    num_forwards = shape.num_stages * shape.num_units * shape.num_updates
    return num_forwards, shape.num_slices, make


def times_from_flags(
    options: argparse.Namespace,
    *,
    num_forwards: int,
    parts: int = 1,
    unit_ns: Fraction | None = None,
) -> FlagTimes:
    """Times of one microbatch, and of the latency of a message, all exact.

    num_forwards: of one step. parts: times of compute can be cut into so many. unit_ns: of the
    flags' times, where a tick has to be a nanosecond.

    Raises UsageError that names the flag, or if a whole step is too long to be counted.
    """
    forward, backward, latency = (
        _time(options, name, default)
        for name, default in (("forward", "1"), ("backward", "2"), ("latency", "0"))
    )
    weight = backward / 2 if options.weight is None else _time(options, "weight", "0")
    if weight > backward:
        given = "2" if options.backward is None else options.backward
        raise UsageError(f"--weight {options.weight} is a part of --backward {given}; give less")
    units = {"forward": forward, "backward": backward, "weight": weight, "latency": latency}
    if unit_ns is None:
        ticks = Fraction(parts * _ticks_of(units.values()))
    else:
        _require_whole(units, unit_ns, parts)
        ticks = unit_ns
    if num_forwards * ticks * (forward + backward + 2 * latency) >= 2**63:
        is_fine = unit_ns is None and ticks > parts * TICKS
        raise UsageError(_TOO_FINE if is_fine else _too_long(2**63 // ticks))
    stage = StageTimes(int(ticks * forward), int(ticks * (backward - weight)), int(ticks * weight))
    return FlagTimes(stage, int(ticks * latency), ticks)


def _ticks_of(times: Iterable[Fraction]) -> int:
    """The smallest power of ten, from ``TICKS`` on, by which all times of decimals get whole."""
    ticks = TICKS
    while any((time * ticks).denominator > 1 for time in times):
        ticks *= 10
    return ticks


def _require_whole(units: Mapping[str, Fraction], unit_ns: Fraction, parts: int) -> None:
    """Raise UsageError unless all times, in units, are whole numbers of nanoseconds.

    parts: of every time but the latency.
    """
    share = "" if parts == 1 else f" in {parts} slices"
    wrong = [
        f"--{name} is {float(time):g} of {float(unit_ns):g} ns{share}; choose times and --unit so"
        " that their product is whole"
        for name, time in units.items()
        if (time * unit_ns / (1 if name == "latency" else parts)).denominator > 1
    ]
    if wrong:
        raise UsageError("times to be emulated are whole numbers of nanoseconds", wrong)


def _shape(options: argparse.Namespace) -> ScheduleShape:
    num_stages = number_from_flag(options, "stages", "4")
    num_workers = number_from_flag(options, "workers", str(num_stages))
    num_microbatches = number_from_flag(options, "microbatches", "8")
    if num_stages % num_workers:
        raise UsageError(_uneven(num_stages, num_workers))
    if num_stages > _MOST_STAGES or num_stages * num_workers > _MOST_PAIRS:
        raise UsageError(_too_wide(num_stages, num_workers))
    num_slices = number_from_flag(options, "slices", "1")
    num_updates = number_from_flag(options, "updates", "1")
    if num_stages * num_microbatches * num_slices * num_updates > _MOST_FORWARDS:
        sizes = {"microbatches": num_microbatches, "slices": num_slices, "updates": num_updates}
        raise UsageError(_too_large(num_stages, sizes))
    chunks = num_stages // num_workers
    return ScheduleShape(num_workers, num_microbatches, chunks, num_slices, num_updates)


def in_unit(ticks: int, *, per_unit: int | Fraction) -> int | float:
    """A time in the unit of the flags; whole where it is."""
    exact = Fraction(ticks) / per_unit
    return exact.numerator if exact.denominator == 1 else float(exact)


def number_from_flag(options: argparse.Namespace, name: str, default: str) -> int:
    """The whole number that a flag was given, or its default."""
    given = getattr(options, name)
    return whole_number(default if given is None else given, f"--{name}")


def _time(options: argparse.Namespace, name: str, default: str) -> Fraction:
    given = getattr(options, name)
    return Fraction(amount(default if given is None else given, f"--{name}"))


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


def _too_large(num_stages: int, sizes: Mapping[str, int]) -> str:
    times = "".join(times_flag(name, size) for name, size in sizes.items())
    return (
        f"--stages {num_stages}{times} is more than {_MOST_FORWARDS:,} forwards; give smaller"
        " numbers"
    )


def times_flag(name: str, size: int) -> str:
    """A factor of how many forwards there are, if it is one."""
    return "" if size == 1 and name != "microbatches" else f" times --{name} {size}"


_TOO_FINE = (
    "all times of a step together are more than 2^63 of the smallest part that their decimals need;"
    " give fewer decimals, shorter times, or fewer stages and microbatches"
)


def _too_long(most: int) -> str:
    return (
        f"all times of a step together are more than {most:,} units; give shorter times, or fewer"
        " stages and microbatches"
    )


def _side_work(file: str, names: list[str]) -> str:
    return (
        f"{file} has side work X:{names[0]}, and no flag gives it a time; take it out, or plan a"
        " job with [[side_work]]"
    )


def _sizes_of_file(file: str, flags: list[str]) -> str:
    return (
        f"--{' and --'.join(flags)}: {file} says itself how large the schedule is; leave"
        f" {'it' if len(flags) == 1 else 'them'} out"
    )
