"""``evener emulate``: run a plan's processes on this machine, without its cluster."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from evener.api import costs_of_plan
from evener.cli.inputs import (
    add_cluster,
    add_json,
    add_profile,
    amount,
    read_cluster,
    read_model,
    whole_number,
)
from evener.cli.output import print_json, print_table, write_file
from evener.cli.shapes import SHAPE_FLAGS, TICKS, add_shape, world_from_flags
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
_MOST_WORKERS = 64


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser(
        "emulate", help="run a plan's processes on this machine, without its cluster"
    )
    parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan file")
    add_profile(parser, required=False)
    add_cluster(parser, required=False)
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="for --clock measured: the model that computes"
    )
    add_shape(parser)
    parser.add_argument(
        "--unit", default="1", metavar="MS", help="milliseconds of one unit of the flags' times"
    )
    parser.add_argument(
        "--clock", default="virtual", metavar="NAME", help=f"{', '.join(CLOCKS)} (default virtual)"
    )
    parser.add_argument("--steps", default="1", metavar="N", help="default 1; medians are printed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the last timeline as JSON")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.clock not in CLOCKS:
        raise UsageError(f'there is no clock "{options.clock}"; clocks: {", ".join(CLOCKS)}')
    steps = whole_number(options.steps, "--steps")
    schedule, costs = _world(options)
    if schedule.num_workers > _MOST_WORKERS:
        raise UsageError(_too_many(schedule.num_workers))
    from evener.executor.emulate import emulate, measured_costs

    timelines = emulate(
        schedule, costs, clock=options.clock, steps=steps, make_engine=_make_engine(options)
    )
    if options.clock == "measured":
        costs = measured_costs(timelines, costs)
    _print(engine.simulate(schedule, costs), timelines, options)
    if options.out is not None:
        write_file(options.out, timeline_to_json(timelines[-1]))
    return 0


def _world(options: argparse.Namespace) -> tuple[Schedule, CostTable]:
    """The lowered schedule and its costs, of a plan or of flags."""
    files = [name for name in ("plan", "profile", "cluster") if getattr(options, name) is not None]
    flags = [name for name in SHAPE_FLAGS if getattr(options, name)]
    if options.schedule is not None:
        if files:
            raise UsageError(f"--schedule stands alone; leave {' and '.join(files)} out")
        unit_ns = int(amount(options.unit, "--unit") * TICKS)
        world = world_from_flags(options, ticks=unit_ns)
        return lower(world.schedule), world.costs
    if flags or len(files) < 3:
        raise UsageError(
            "there is nothing to emulate; give PLAN --profile FILE --cluster FILE, or --schedule"
            " NAME with its flags"
        )
    plan = Plan.load(options.plan)
    costs = costs_of_plan(plan, Profile.load(options.profile), read_cluster(options.cluster))
    return plan.lowered(), costs


def _make_engine(options: argparse.Namespace) -> "MakeEngine | None":
    """The real model that computes under the measured clock."""
    if options.clock != "measured":
        return None
    if options.plan is None or options.model is None:
        raise UsageError("--clock measured runs a real model; give PLAN and --model FILE")
    from evener.executor.emulated_model import model_engine

    return model_engine(Plan.load(options.plan), read_model(options.model))


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


def _too_many(num_workers: int) -> str:
    return (
        f"{num_workers} workers are {num_workers} processes on this machine; emulate at most"
        f" {_MOST_WORKERS}, or use `evener simulate`"
    )
