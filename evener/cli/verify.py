"""``evener verify``: train a tiny model under a schedule and in one process, and compare."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from evener.cli.inputs import add_json, add_plan, require_few
from evener.cli.output import print_json, print_text, progress_bar
from evener.cli.parser import Verbs, add_verb
from evener.cli.shapes import SCHEDULE_SUFFIXES
from evener.errors import UsageError
from evener.export import read_schedule
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule

if TYPE_CHECKING:
    from evener.executor.verify import Parity

FAILED = 1


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="prove that a schedule trains as one process does",
        about="Trains a tiny model of its own in real processes, under the schedule of a plan or"
        " under every schedule, and in one process; compares losses, gradients and parameters in"
        " float64.  PLAN may also be a schedule: torch's CSV (.csv), or our own text (.txt).",
        example="evener verify plan.json\n  evener verify schedule.csv",
    )
    add_plan(parser, required=False)
    parser.add_argument("--all", action="store_true", help="every schedule, many shapes (minutes)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.plan is None and not options.all:
        raise UsageError("there is nothing to verify; give PLAN, or --all for every schedule")
    if options.plan is not None and options.all:
        raise UsageError(f"--all verifies no plan; leave {options.plan} or --all out")
    plan = None if options.plan is None else _read(options.plan)
    from evener.executor.parity_grid import all_cases
    from evener.executor.verify import TOLERANCE, verify, verify_cases

    if plan is not None:
        parities = [verify(plan)]
    else:
        cases = list(all_cases())
        parities = []
        with progress_bar("verifying", quiet=options.json) as bar:
            task = bar.task_ids[0]
            for parity in verify_cases(cases):
                parities.append(parity)
                bar.update(task, completed=len(parities), total=len(cases), news=parity.case)
    failed = [parity for parity in parities if not parity.holds]
    if options.json:
        print_json({"tolerance": TOLERANCE, "cases": [_as_json(parity) for parity in parities]})
    else:
        _print(parities, failed, TOLERANCE)
    return FAILED if failed else 0


def _read(path: Path) -> Plan | Schedule:
    """A plan, or a schedule of another tool or in our own text form."""
    read = read_schedule if path.suffix in SCHEDULE_SUFFIXES else Plan.load
    plan = read(path)
    require_few(plan.num_workers, "verify")
    return plan


def _as_json(parity: "Parity") -> dict[str, object]:
    return {
        "case": parity.case,
        "loss": parity.loss,
        "gradient": parity.gradient,
        "grad_norm": parity.grad_norm,
        "parameter": parity.parameter,
    }


def _difference(parity: "Parity") -> str:
    return (
        f"{parity.case}: differs from one process: loss {parity.loss:.2e}, gradients"
        f" {parity.gradient:.2e}, norm {parity.grad_norm:.2e}, parameters {parity.parameter:.2e}"
    )


def _print(parities: list["Parity"], failed: list["Parity"], tolerance: float) -> None:
    worst = max(parities, key=lambda parity: parity.worst)
    for parity in failed:
        print(f"evener: {_difference(parity)}", file=sys.stderr)
    print_text(
        f"{len(parities) - len(failed)} of {len(parities)} cases equal one process within"
        f" {tolerance:g} (float64, 3 steps: losses, gradients, norms, parameters);"
        f" worst {worst.worst:.2e} in {worst.case}"
    )
