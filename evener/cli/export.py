"""``evener export``: write a plan in another tool's format."""

import argparse
from pathlib import Path

from evener.api import export
from evener.cli.inputs import add_json, add_model, add_plan, read_model_of, require_name
from evener.cli.output import print_json, print_text, require_writable, writing
from evener.cli.parser import Verbs, add_verb
from evener.export.registry import EXPORTERS
from evener.ir.plan import Plan


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="write a plan in another tool's format",
        about="Reads a plan and writes it as another tool reads it, or says what would be lost.",
        example="evener export plan.json --to torch_csv --out schedule.csv",
    )
    add_plan(parser)
    add_model(parser, required=False)
    parser.add_argument("--to", required=True, metavar="FORMAT", help=", ".join(EXPORTERS))
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="where to write")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what the format cannot express, write nothing"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    require_name(options.to, EXPORTERS, "format")
    require_writable(options.out)
    plan = Plan.load(options.plan)
    model = read_model_of(plan, options.model)
    reasons = [str(reason) for reason in EXPORTERS[options.to].unsupported(plan, model)]
    if not options.dry_run:
        with writing(options.out):
            export(plan, to=options.to, path=options.out, model=model)
    if options.json:
        written = None if options.dry_run else str(options.out)
        print_json({"to": options.to, "unsupported": reasons, "written": written})
    elif options.dry_run:
        print_text("\n".join(reasons) or f"{options.to} can express the whole plan")
    return 0
