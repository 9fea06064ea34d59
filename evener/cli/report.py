"""``evener report``: one self-contained HTML file of one timeline, or of two."""

import argparse
import json
from pathlib import Path

from evener.cli.inputs import add_json
from evener.cli.output import print_json, print_text
from evener.errors import UsageError
from evener.export.perfetto import write_trace
from evener.ir.timeline import Timeline
from evener.ir.timeline_json import timeline_from_json
from evener.report import Summary, build_report, render_text, report_json, write_report


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("report", help="show timelines as HTML, text, JSON or a trace")
    parser.add_argument("predicted", type=Path, metavar="TIMELINE", help="of `evener simulate`")
    parser.add_argument(
        "measured", nargs="?", type=Path, metavar="MEASURED", help="of `evener train` or `emulate`"
    )
    parser.add_argument("--losses", type=Path, metavar="FILE", help="JSON list, for the loss curve")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write HTML")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a Chrome/Perfetto trace")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    predicted = read_timeline(options.predicted)
    measured = None if options.measured is None else read_timeline(options.measured)
    losses = [] if options.losses is None else _read_losses(options.losses)
    data = build_report(
        predicted,
        measured=measured,
        summary=Summary(title=f"Evener: {predicted.schedule.name}"),
        losses=losses,
    )
    try:
        if options.out is not None:
            write_report(options.out, data)
        if options.trace is not None:
            write_trace(options.trace, *data.timelines)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}") from None
    if options.json:
        print_json(report_json(data))
    elif options.out is None and options.trace is None:
        print_text(render_text(data))
    return 0


def read_timeline(path: Path) -> Timeline:
    """A timeline file. Raises EvenerError with all that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(_unreadable(path, str(error))) from None
    return timeline_from_json(text, file=path)


def _read_losses(path: Path) -> list[float]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(_unreadable(path, str(error))) from None
    if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
        raise UsageError(f"{path} is not a JSON list of numbers; give one such as [9.1, 8.7]")
    return [float(value) for value in values]


def _unreadable(path: Path, reason: str) -> str:
    return f"{path} cannot be read: {reason}"
