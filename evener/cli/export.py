"""``evener export``: write a plan in another tool's format."""

import argparse
from pathlib import Path

from evener.api import export
from evener.cli.output import print_text
from evener.export.registry import EXPORTERS
from evener.ir.plan import Plan


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("export", help="write a plan in another tool's format")
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan file")
    parser.add_argument("--to", required=True, metavar="FORMAT", help=", ".join(EXPORTERS))
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="where to write")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what the format cannot express, write nothing"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    plan = Plan.load(options.plan)
    if options.to in EXPORTERS and options.dry_run:
        reasons = [str(reason) for reason in EXPORTERS[options.to].unsupported(plan)]
        print_text("\n".join(reasons) or f"{options.to} can express the whole plan")
        return 0
    export(plan, to=options.to, path=options.out)
    return 0
