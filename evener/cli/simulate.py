"""``evener simulate``: predict one step, of a plan or of a schedule given by flags."""

import argparse
from pathlib import Path

from evener.api import simulate
from evener.cli.inputs import add_cluster, add_json, add_profile, read_cluster
from evener.cli.output import print_json, print_table, print_text, write_file
from evener.cli.shapes import SHAPE_FLAGS, add_shape, in_unit, world_from_flags
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


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("simulate", help="predict one step without running anything")
    parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan file")
    add_profile(parser, required=False)
    add_cluster(parser, required=False)
    add_shape(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the timeline as JSON")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    _require_one_form(options)
    if options.schedule is not None:
        world = world_from_flags(options)
        timeline = engine.simulate(world.schedule, world.costs)
        _print_in_unit(timeline, options)
    else:
        plan, profile = Plan.load(options.plan), Profile.load(options.profile)
        timeline = simulate(plan, profile, read_cluster(options.cluster))
        _print_plan(timeline, options)
    if options.out is not None:
        write_file(options.out, timeline_to_json(timeline))
    return 0


def _require_one_form(options: argparse.Namespace) -> None:
    """Either a plan with its files, or flags."""
    flags = [name for name in SHAPE_FLAGS if getattr(options, name)]
    files = [name for name in ("plan", "profile", "cluster") if getattr(options, name) is not None]
    if options.schedule is not None and files:
        raise UsageError(
            f"--schedule stands alone; leave {' and '.join(files)} out, or give a plan"
        )
    if options.schedule is None and flags:
        raise UsageError(f"--{' and --'.join(flags)} go with --schedule; name one")
    if options.schedule is None and len(files) < 3:
        raise UsageError(
            "there is nothing to simulate; give PLAN --profile FILE --cluster FILE, or --schedule"
            " NAME"
        )


def _print_in_unit(timeline: Timeline, options: argparse.Namespace) -> None:
    found = bubbles(timeline)
    in_flight = peak_in_flight(timeline.schedule)
    if options.json:
        print_json(
            {
                "schedule": timeline.schedule.name,
                "makespan": in_unit(timeline.step_ns),
                "bubble_fraction": found.bubble_fraction,
                "peak_in_flight": in_flight,
                "busy": [in_unit(busy) for busy in found.busy_ns],
                "warm_up": [in_unit(idle) for idle in found.warm_up_ns],
                "cool_down": [in_unit(idle) for idle in found.cool_down_ns],
                "residual": [in_unit(idle) for idle in found.residual_ns],
            }
        )
        return
    print_table(
        {
            "schedule": timeline.schedule.name,
            "makespan": str(in_unit(timeline.step_ns)),
            "bubble": f"{found.bubble_fraction:.1%}",
            "peak in flight": " ".join(map(str, in_flight)),
        }
    )
    print_text(timeline_text(timeline))


def _print_plan(timeline: Timeline, options: argparse.Namespace) -> None:
    found = bubbles(timeline)
    in_flight = peak_in_flight(timeline.schedule)
    if options.json:
        print_json(
            {
                "schedule": timeline.schedule.name,
                "step_ns": timeline.step_ns,
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
            "step time": format_ns(timeline.step_ns, digits=4),
            "bubble": f"{found.bubble_fraction:.1%}",
            "peak in flight": " ".join(map(str, in_flight)),
            "peak memory": ", ".join(format_bytes(peak, digits=3) for peak in timeline.peak_bytes),
        }
    )
    print_text(timeline_text(timeline))
