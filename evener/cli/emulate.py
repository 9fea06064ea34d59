"""``evener emulate``: run a plan's processes on this machine, without its cluster."""

import argparse
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from evener.api import costs_of_plan
from evener.cli.inputs import (
    add_cluster,
    add_json,
    add_plan,
    add_profile,
    positive,
    read_cluster,
    read_model_of,
    require_few,
    require_name,
    whole_number,
)
from evener.cli.output import print_json, print_table, require_writable, write_file
from evener.cli.parser import Verbs, add_verb
from evener.cli.shapes import add_shape, is_from_flags, world_from_flags
from evener.cost.profile import Profile
from evener.cost.table import CostTable
from evener.errors import UsageError
from evener.ir.passes import lower
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.ir.timeline_json import timeline_to_json
from evener.sim import engine
from evener.units import format_ns

if TYPE_CHECKING:
    from evener.executor.emulate import MakeEngine

CLOCKS = ("virtual", "measured", "wall")
_NUM_WARM_UPS = 2  # the first steps of a process also load code and make room


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="run a plan's processes on this machine, without its cluster",
        about="Reads what `evener simulate` reads and runs one process per worker with real"
        " messages.\nvirtual: actions take what the profile says, on a clock that equals the"
        " simulator's.\nmeasured: the real model computes; actions take their CPU time."
        "\nwall: workers sleep, links are slowed down, real time passes.",
        example="evener emulate plan.json --profile profile.json --cluster cluster.toml"
        "\n  evener emulate --schedule zb_h1 --stages 16 --unit 50 --clock wall --steps 5",
    )
    add_plan(parser, required=False)
    add_profile(parser, required=False)
    add_cluster(parser, required=False)
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="for --clock measured: the model that computes; or of a plan that cuts slices",
    )
    add_shape(parser)
    parser.add_argument(
        "--unit", metavar="MS", help="milliseconds of one unit of the flags' times (default 1)"
    )
    parser.add_argument(
        "--clock", default="virtual", metavar="NAME", help=f"{', '.join(CLOCKS)} (default virtual)"
    )
    parser.add_argument("--steps", default="1", metavar="N", help="default 1; medians are printed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the last timeline as JSON")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    require_name(options.clock, CLOCKS, "clock")
    steps = whole_number(options.steps, "--steps")
    from_flags = is_from_flags(options)
    _require_fitting(options, from_flags)
    require_writable(options.out)
    schedule, costs, make_engine = _from_flags(options) if from_flags else _from_files(options)
    require_few(schedule.num_workers, "emulate")
    from evener.executor.emulate import emulate, measured_costs

    is_measured = options.clock == "measured"
    skipped = _NUM_WARM_UPS if is_measured else 0
    timelines = emulate(
        schedule, costs, clock=options.clock, steps=skipped + steps, make_engine=make_engine
    )[skipped:]
    if is_measured:
        costs = measured_costs(timelines, costs)
    if options.out is not None:
        write_file(options.out, timeline_to_json(timelines[-1]))
    _print(engine.simulate(schedule, costs), timelines, options)
    return 0


def _require_fitting(options: argparse.Namespace, from_flags: bool) -> None:
    """Raise UsageError if flags were given that belong to another way to emulate."""
    if options.clock == "measured" and (from_flags or options.model is None):
        raise UsageError("--clock measured runs a real model; give PLAN and --model FILE")
    if from_flags and options.model is not None:
        raise UsageError(_no_model(options.clock))
    if options.unit is not None and not from_flags:
        raise UsageError("--unit is for the times of --schedule; a plan has its times from files")


def _from_flags(options: argparse.Namespace) -> tuple[Schedule, CostTable, "MakeEngine | None"]:
    unit_ms = positive("1" if options.unit is None else options.unit, "--unit")
    world = world_from_flags(options, unit_ns=Fraction(unit_ms) * 10**6)
    return lower(world.schedule), world.costs, None


def _from_files(options: argparse.Namespace) -> tuple[Schedule, CostTable, "MakeEngine | None"]:
    plan = Plan.load(options.plan)
    if options.clock != "measured" and options.model is not None and plan.slice_tokens is None:
        raise UsageError(_no_model(options.clock))
    model = read_model_of(plan, options.model)
    profile, cluster = Profile.load(options.profile), read_cluster(options.cluster)
    costs = costs_of_plan(plan, profile, cluster, model=model)
    if options.clock != "measured":
        return plan.lowered(), costs, None
    from evener.executor.emulated_model import model_engine

    assert model is not None, "checked with the flags"
    return plan.lowered(), costs, model_engine(plan, model)


def _print(predicted: Timeline, timelines: Sequence[Timeline], options: argparse.Namespace) -> None:
    step_ns = [timeline.step_ns for timeline in timelines]
    emulated_ns = round(median(step_ns))
    difference = emulated_ns / max(predicted.step_ns, 1) - 1
    differing = sum(
        own != other
        for timeline in timelines
        for one, two in (
            (timeline.start_ns, predicted.start_ns),
            (timeline.end_ns, predicted.end_ns),
        )
        for own, other in zip(one, two, strict=True)
    )
    if options.json:
        print_json(
            {
                "clock": options.clock,
                "predicted_step_ns": predicted.step_ns,
                "emulated_step_ns": step_ns,
                "median_step_ns": emulated_ns,
                "difference": difference,
                "differing_times": differing,
            }
        )
        return
    rows = {
        "clock": options.clock,
        "workers": str(predicted.schedule.num_workers),
        "predicted step": format_ns(predicted.step_ns, digits=5),
        "emulated step": f"{format_ns(emulated_ns, digits=5)} (median of {len(step_ns)})",
        "difference": f"{difference:+.2%}",
    }
    if options.clock == "virtual":
        times = 2 * predicted.schedule.num_actions * len(timelines)
        rows["equal times"] = f"{times - differing} of {times} starts and ends"
    print_table(rows)


def _no_model(clock: str) -> str:
    return f"--clock {clock} runs no model; leave --model out"
