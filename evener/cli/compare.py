"""``evener compare``: all schedules side by side, under given costs."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from evener.cli.inputs import (
    add_cluster,
    add_job,
    add_json,
    add_model,
    add_profile,
    read_cluster,
    read_job,
    read_model,
    shared_out,
    whole_number,
    whole_numbers,
)
from evener.cli.output import (
    print_json,
    print_text,
    progress_bar,
    require_writable,
    warn,
    writing,
)
from evener.cli.parser import Verbs, add_verb
from evener.cli.shapes import add_times, in_unit, number_from_flag, times_flag, times_from_flags
from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.ir.freezing import WHOLE_PPM
from evener.planner.compare import (
    ComparedSchedule,
    Comparison,
    EqualWorld,
    PlannedWorld,
    World,
    compare,
)
from evener.planner.problem import MOST_FORWARDS, Problem
from evener.report.comparison import Measures, comparison_text, measures_of, write_comparison
from evener.report.figures import Scale

_FILES = ("model", "cluster", "job", "profile")
_FLAGS = (
    *("workers", "microbatches", "slices", "updates", "forward", "backward", "weight", "latency"),
    *("memory", "freeze"),
)
_MOST_CHUNKS = 8


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="all schedules side by side",
        about="Simulates every schedule under the same costs, and says which cannot run and why.\n"
        "The costs are those of a model on a cluster, cut into stages for each schedule; or of"
        " workers that all hold an equal share of a model.",
        example="evener compare --workers 4 --microbatches 8 --forward 1 --backward 2\n"
        "  evener compare --model model.toml --cluster cluster.toml --profile profile.json",
    )
    add_model(parser, required=False)
    add_cluster(parser, required=False)
    add_job(parser)
    add_profile(parser, required=False)
    group = parser.add_argument_group(
        "costs without files",
        "times are numbers in any one unit: of one microbatch on the share of one worker",
    )
    group.add_argument("--workers", metavar="N", help="default 4")
    add_times(group)
    group.add_argument(
        "--memory",
        metavar="N",
        help="microbatches whose activations a worker has room for (default: no limit)",
    )
    group.add_argument(
        "--freeze",
        metavar="SHARE",
        help="freeze up to this share of the parameters of a stage (default: none)",
    )
    parser.add_argument(
        "--chunks", default="1,2", metavar="N,N", help="stages per worker to try (default 1,2)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table as HTML")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from_files = _is_from_files(options)
    chunks = whole_numbers(options.chunks, "--chunks")
    if max(chunks) > _MOST_CHUNKS:
        raise UsageError(f"--chunks {max(chunks)} is too large; give {_MOST_CHUNKS} or less")
    require_writable(options.out)
    world: World
    if from_files:
        planned = _planned_world(options)
        world, units, num_slices = planned, None, planned.problem.job.slices
    else:
        num_slices = number_from_flag(options, "slices", "1")
        # Whole numbers stay whole when a worker's share is cut.
        parts = math.lcm(*chunks) * num_slices
        world, ticks = _equal_world(options, parts, max(chunks), num_slices)
        units = Units(parts, ticks)
    with progress_bar("comparing", quiet=options.json) as bar:
        found = compare(
            world,
            chunks=chunks,
            num_slices=num_slices,
            progress=lambda done, total, _: bar.update(
                bar.task_ids[0], completed=done, total=total
            ),
        )
    measures = measures_of(found) if units is None else units.measures()
    if options.out is not None:
        title = f"Schedules for {world.num_workers} workers, {world.num_microbatches} microbatches"
        with writing(options.out):
            write_comparison(options.out, found, measures, title=title)
    if options.json:
        print_json(_as_json(world, found, units))
    else:
        print_text(comparison_text(found, measures))
    return 0


@dataclass(frozen=True)
class Units:
    """What one unit of the flags is: of memory, parts; of time, ticks."""

    parts: int
    ticks: Fraction

    def time(self, ns: int) -> int | float:
        return in_unit(ns, per_unit=self.ticks)

    def memory(self, held: int) -> int | float:
        return in_unit(held, per_unit=self.parts)

    def measures(self) -> Measures:
        return Measures(
            time=lambda ns: f"{self.time(ns):g}",
            memory=lambda held: f"{self.memory(held):g}",
            axis=Scale("", int(self.ticks), 0),
            note="memory counts microbatches of a worker's share of the model",
        )


def _is_from_files(options: argparse.Namespace) -> bool:
    """Raises UsageError if costs were given in both ways, or in half a way."""
    files = [f"--{name}" for name in _FILES if getattr(options, name) is not None]
    flags = [f"--{name}" for name in _FLAGS if getattr(options, name) is not None]
    if files and flags:
        raise UsageError(_both(files, flags))
    needed = ("--model", "--cluster", "--profile")
    missing = [name for name in needed if name not in files]
    if files and missing:
        raise UsageError(f"{' and '.join(files)} is not enough; add {' and '.join(missing)}")
    return bool(files)


def _planned_world(options: argparse.Namespace) -> PlannedWorld:
    job, profile = read_job(options.job), Profile.load(options.profile)
    warn(shared_out(job, profile))
    model, cluster = read_model(options.model), read_cluster(options.cluster)
    return PlannedWorld(Problem(model, cluster, job, profile))


def _equal_world(
    options: argparse.Namespace, parts: int, most_chunks: int, num_slices: int
) -> tuple[World, Fraction]:
    """And how many ticks of its times one unit of the flags is.

    parts: into which every time can be cut.
    """
    num_workers = number_from_flag(options, "workers", "4")
    num_microbatches = number_from_flag(options, "microbatches", "8")
    num_updates = number_from_flag(options, "updates", "1")
    num_forwards = num_workers * num_microbatches * most_chunks * num_slices * num_updates
    if num_forwards > MOST_FORWARDS:
        sizes = {"chunks": most_chunks, "slices": num_slices, "updates": num_updates}
        raise UsageError(_too_large(num_workers, num_microbatches, sizes))
    if num_updates > 1 and options.freeze is not None:
        raise UsageError(_FREEZES_AND_UPDATES)
    share = None if options.freeze is None else _share(options.freeze)
    # What is frozen cuts times into millionths.
    time_parts = parts if share is None else parts * WHOLE_PPM
    times = times_from_flags(options, num_forwards=num_forwards, parts=time_parts)
    cap = None if options.memory is None else parts * whole_number(options.memory, "--memory")
    world = EqualWorld(
        num_workers,
        num_microbatches,
        times.stage,
        latency_ns=times.latency,
        share_bytes=parts,
        cap_bytes=cap,
        max_share_ppm=share,
        num_updates=num_updates,
    )
    return world, times.ticks


def _share(text: str) -> int:
    """In parts per million. Raises UsageError for anything but a millionth to 1."""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise UsageError(f'--freeze "{text}" is no share; give more than 0, and 1 or less')
    share_ppm = round(share * WHOLE_PPM)
    if share_ppm == 0:
        raise UsageError(f'--freeze "{text}" rounds to 0 parts per million; give 0.000001 or more')
    return share_ppm


def _as_json(world: World, found: Comparison, units: Units | None) -> dict[str, Any]:
    """units: of times and memory; None where these are in nanoseconds and bytes."""

    def row(schedule: ComparedSchedule) -> dict[str, Any]:
        return {
            "schedule": schedule.entry.name,
            "stages": schedule.shape.num_stages,
            "slices": schedule.timeline.schedule.num_slices,
            **_amounts(schedule, units),
            "bubble_fraction": schedule.bubbles.bubble_fraction,
            "gap": found.gap(schedule),
            "peak_in_flight": schedule.peak_in_flight,
            "messages": schedule.num_messages,
            "gradient_sums": schedule.num_reduces,
            **({"offloaded": schedule.num_offloaded} if found.has_offload else {}),
            **({"side_work_steps": schedule.num_side_steps} if found.has_side_work else {}),
            **_frozen(schedule, units),
        }

    bound_ns = found.lower_bound_ns
    return {
        "workers": world.num_workers,
        "microbatches": world.num_microbatches,
        **(
            {"lower_bound_ns": bound_ns} if units is None else {"lower_bound": units.time(bound_ns)}
        ),
        "schedules": [row(schedule) for schedule in found.compared],
        "refused": [
            {
                "schedule": refused.entry.name,
                "stages": refused.shape.num_stages,
                "reason": refused.reason,
            }
            for refused in found.refused
        ],
    }


def _amounts(schedule: ComparedSchedule, units: Units | None) -> dict[str, Any]:
    peaks = schedule.timeline.peak_bytes
    if units is None:
        return {
            "step_ns": schedule.step_ns,
            "peak_bytes": peaks,
            "message_bytes": schedule.message_bytes,
        }
    return {
        "makespan": units.time(schedule.step_ns),
        "peak_memory": [units.memory(peak) for peak in peaks],
    }


def _frozen(schedule: ComparedSchedule, units: Units | None) -> dict[str, Any]:
    if schedule.frozen is None:
        return {}
    step_ns, mean_ppm, uniform_ns = schedule.frozen
    share = {"frozen_share": mean_ppm / WHOLE_PPM}
    if units is None:
        return {"frozen_step_ns": step_ns, "evenly_frozen_step_ns": uniform_ns, **share}
    return {
        "frozen_makespan": units.time(step_ns),
        "evenly_frozen_makespan": units.time(uniform_ns),
        **share,
    }


def _both(files: list[str], flags: list[str]) -> str:
    return (
        f"{' and '.join(flags)}: only without files; leave out, or leave {' and '.join(files)} out"
    )


_FREEZES_AND_UPDATES = (
    "--freeze is for one update between two flushes; leave it out, or leave --updates out"
)


def _too_large(num_workers: int, num_microbatches: int, sizes: Mapping[str, int]) -> str:
    times = "".join(times_flag(name, size) for name, size in sizes.items())
    return (
        f"--workers {num_workers} times --microbatches {num_microbatches}{times} is more than"
        f" {MOST_FORWARDS:,} forwards for each schedule; give smaller numbers"
    )
