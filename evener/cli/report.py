"""``evener report``: one self-contained HTML file of one timeline, or of two."""

import argparse
import json
from pathlib import Path

from evener.api import summarize
from evener.cli.inputs import add_cluster, add_json, add_model, read_cluster, read_model
from evener.cli.output import print_json, print_text, require_writable, writing
from evener.cli.parser import Verbs, add_verb
from evener.errors import UsageError
from evener.export.perfetto import write_trace
from evener.ir.plan import Plan
from evener.ir.timeline import Timeline
from evener.ir.timeline_json import load_timeline
from evener.report import (
    Summary,
    build_report,
    render_text,
    report_json,
    summary_of_plan,
    write_report,
)


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="show timelines as HTML, text, JSON or a trace",
        about="Reads one timeline, or a predicted and a measured one; prints them as text unless"
        " they are written as one HTML file or as a trace. With the plan it tells tokens/s, with"
        " the model and the cluster also MFU and memory caps.",
        example="evener report predicted.json run/measured.json --losses run/losses.json"
        " --plan plan.json --out report.html",
    )
    parser.add_argument("predicted", type=Path, metavar="TIMELINE", help="of `evener simulate`")
    parser.add_argument(
        "measured", nargs="?", type=Path, metavar="MEASURED", help="of `evener train` or `emulate`"
    )
    parser.add_argument(
        "--plan", type=Path, metavar="FILE", help="for tokens/s, the bound and names"
    )
    add_model(parser, required=False)
    add_cluster(parser, required=False)
    parser.add_argument("--losses", type=Path, metavar="FILE", help="JSON list, for the loss curve")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write HTML")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a Chrome/Perfetto trace")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    require_writable(options.out)
    require_writable(options.trace, "--trace")
    predicted = load_timeline(options.predicted)
    measured = None if options.measured is None else load_timeline(options.measured)
    losses = [] if options.losses is None else _read_losses(options.losses)
    data = build_report(
        predicted,
        measured=measured,
        summary=_summary(options, predicted),
        losses=losses,
    )
    if options.out is not None:
        with writing(options.out):
            write_report(options.out, data)
    if options.trace is not None:
        with writing(options.trace, "--trace"):
            write_trace(options.trace, *data.timelines)
    if options.json:
        print_json(report_json(data))
    elif options.out is None and options.trace is None:
        print_text(render_text(data))
    return 0


def _summary(options: argparse.Namespace, predicted: Timeline) -> Summary:
    """What is known besides the timelines: of the plan, and with the model and cluster its MFU."""
    further = [name for name in ("model", "cluster") if getattr(options, name) is not None]
    if options.plan is None:
        if further:
            raise UsageError(f"--{further[0]} tells nothing without a plan; add --plan FILE")
        return Summary(title=f"Evener: {predicted.schedule.name}")
    plan = Plan.load(options.plan)
    if plan.num_workers != predicted.schedule.num_workers:
        raise UsageError(_other_plan(options, plan, predicted))
    if not further:
        return summary_of_plan(plan)
    if len(further) == 1:
        raise UsageError(f"--{further[0]} alone gives no MFU; give --model and --cluster, or none")
    return summarize(plan, read_model(options.model), read_cluster(options.cluster))


def _read_losses(path: Path) -> list[float]:
    """A JSON list of numbers; NaN is one, as a diverging run writes it."""
    try:
        # Every number as a float: an integer may be too long to become one later.
        values = json.loads(path.read_text(encoding="utf-8"), parse_int=float)
    except OSError as error:
        raise UsageError(f"--losses {path} cannot be read: {error.strerror}; {_WAY_OUT}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"--losses {path} is not JSON; {_WAY_OUT}") from None
    if not isinstance(values, list):
        raise UsageError(f"--losses {path} is not a list; {_WAY_OUT}")
    for place, value in enumerate(values):
        if not isinstance(value, float):
            raise UsageError(
                f"--losses {path}: number {place + 1} is {json.dumps(value)[:40]}; {_WAY_OUT}"
            )
    return values


def _other_plan(options: argparse.Namespace, plan: Plan, timeline: Timeline) -> str:
    return (
        f"--plan {options.plan} has {plan.num_workers} workers, but {options.predicted} has"
        f" {timeline.schedule.num_workers}; give the plan of the timeline"
    )


_WAY_OUT = "give a JSON list of numbers such as [9.1, 8.7], as `evener train --out DIR` writes it"
