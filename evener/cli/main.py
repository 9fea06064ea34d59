"""``evener VERB ...``: one verb per file, few flags, everything else in TOML."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from evener import __version__
from evener.cli import emulate, export, measure, plan, report, simulate, train, verify
from evener.errors import EvenerError, UsageError
from evener.units import UnitError

USER_ERROR = 2
INTERRUPTED = 130

VERBS = (measure, plan, simulate, train, emulate, verify, report, export)


class Parser(argparse.ArgumentParser):
    """Turns what argparse finds wrong into our own error, printed like every other one."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", [f"see `{self.prog} --help`"])


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(prog="evener", description=__doc__)
    parser.add_argument("--version", action="version", version=f"evener {__version__}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for a user's error, 130 for Ctrl-C."""
    try:
        options = build_parser().parse_args(arguments)
        return int(options.run(options))
    except (EvenerError, UnitError) as error:
        print(f"evener: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("evener: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has closed it; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
