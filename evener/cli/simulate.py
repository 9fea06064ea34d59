"""``evener simulate``: predict one step, of a plan or of a schedule given by flags."""

import argparse
from fractions import Fraction
from functools import partial
from pathlib import Path

from evener.api import simulate
from evener.cli.inputs import (
    add_cluster,
    add_json,
    add_plan,
    add_profile,
    read_cluster,
    read_model_of,
)
from evener.cli.output import (
    print_json,
    print_table,
    print_text,
    require_writable,
    write_file,
)
from evener.cli.parser import Verbs, add_verb
from evener.cli.shapes import TICKS, add_shape, in_unit, is_from_flags, world_from_flags
from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.ir.memory import peak_in_flight
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.ir.timeline_json import timeline_to_json
from evener.report import timeline_text
from evener.sim import engine
from evener.sim.stats import bubbles
from evener.units import format_bytes, format_ns


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="predict one step without running anything",
        about="Reads a plan with its profile and cluster, or takes a schedule from flags; writes a"
        " timeline.",
        example="evener simulate plan.json --profile profile.json --cluster cluster.toml\n"
        "  evener simulate --schedule one_f_one_b --stages 4 --microbatches 8",
    )
    add_plan(parser, required=False)
    add_profile(parser, required=False)
    add_cluster(parser, required=False)
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="the plan's model, if it cuts slices of tokens"
    )
    add_shape(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the timeline as JSON")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from_flags = is_from_flags(options)
    if from_flags and options.model is not None:
        raise UsageError("--schedule stands alone; leave --model out, or leave --schedule out")
    require_writable(options.out)
    if from_flags:
        world = world_from_flags(options)
        if options.out is not None and world.ticks != TICKS:
            raise UsageError(_TOO_FINE)
        timeline = engine.simulate(world.schedule, world.costs)
    else:
        plan, profile = Plan.load(options.plan), Profile.load(options.profile)
        model = read_model_of(plan, options.model)
        timeline = simulate(plan, profile, read_cluster(options.cluster), model=model)
    if options.out is not None:
        write_file(options.out, timeline_to_json(timeline))
    if from_flags:
        _print_in_unit(timeline, options, world.ticks)
    else:
        _print_plan(timeline, options)
    return 0


def _print_in_unit(timeline: Timeline, options: argparse.Namespace, ticks: Fraction) -> None:
    in_units = partial(in_unit, per_unit=ticks)
    found = bubbles(timeline)
    in_flight = peak_in_flight(timeline.schedule)
    if options.json:
        print_json(
            {
                "schedule": timeline.schedule.name,
                "makespan": in_units(timeline.step_ns),
                "bubble_fraction": found.bubble_fraction,
                "peak_in_flight": in_flight,
                "busy": [in_units(busy) for busy in found.busy_ns],
                "warm_up": [in_units(idle) for idle in found.warm_up_ns],
                "cool_down": [in_units(idle) for idle in found.cool_down_ns],
                "residual": [in_units(idle) for idle in found.residual_ns],
            }
        )
        return
    print_table(
        {
            "schedule": timeline.schedule.name,
            "makespan": str(in_units(timeline.step_ns)),
            "bubble": f"{found.bubble_fraction:.1%}",
            "peak in flight": " ".join(map(str, in_flight)),
        }
    )
    print_text(timeline_text(timeline, step=str(in_units(timeline.step_ns))))


def _print_plan(timeline: Timeline, options: argparse.Namespace) -> None:
    found = bubbles(timeline)
    in_flight = peak_in_flight(timeline.schedule)
    if options.json:
        print_json(
            {
                "schedule": timeline.schedule.name,
                "step_ns": timeline.update_ns,
                "bubble_fraction": found.bubble_fraction,
                "peak_in_flight": in_flight,
                "peak_bytes": timeline.peak_bytes,
                "busy_ns": found.busy_ns,
                "warm_up_ns": found.warm_up_ns,
                "cool_down_ns": found.cool_down_ns,
                "residual_ns": found.residual_ns,
            }
        )
        return
    print_table(
        {
            "schedule": timeline.schedule.name,
            "step time": format_ns(timeline.update_ns, digits=4),
            "bubble": f"{found.bubble_fraction:.1%}",
            "peak in flight": " ".join(map(str, in_flight)),
            "peak memory": ", ".join(format_bytes(peak, digits=3) for peak in timeline.peak_bytes),
        }
    )
    print_text(timeline_text(timeline))


_TOO_FINE = (
    "--out: times in files are whole nanoseconds, and a unit is a millisecond; give times of at"
    " most 6 decimals (half of --backward is the time of W), or leave --out out"
)
