"""Plans, simulates and runs the training of large models when nothing is equal.

One verb per step, few flags, everything else in TOML files (see recipes/). With --json every verb
prints one JSON object in one line. Exit codes: 0, 1 if `verify` finds a difference, 2 for an error
in what was asked, 130 for Ctrl-C.
"""

import io
import os
import sys
from collections.abc import Sequence

from evener import __version__
from evener.cli import compare, emulate, export, measure, plan, report, simulate, train, verify
from evener.cli.parser import Parser, require_verb
from evener.errors import EvenerError, UsageError
from evener.units import UnitError

USER_ERROR = 2
INTERRUPTED = 130

VERBS = {
    "measure": measure,
    "plan": plan,
    "simulate": simulate,
    "compare": compare,
    "train": train,
    "emulate": emulate,
    "verify": verify,
    "report": report,
    "export": export,
}

_EXAMPLE = """\
example:
  evener simulate --schedule one_f_one_b --stages 4 --microbatches 8 --forward 1 --backward 2
  evener VERB --help
"""


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(prog="evener", description=__doc__, epilog=_EXAMPLE)
    parser.add_argument("--version", action="version", version=f"evener {__version__}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        verb.add_parser(verbs, name)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, see above."""
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else list(arguments))
        finally:
            sys.stdout.flush()
    except (EvenerError, UnitError) as error:
        print(f"evener: {error}", file=sys.stderr)
        return USER_ERROR
    except MemoryError:
        print("evener: there is not enough memory for this; ask for less", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("evener: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has closed it; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: list[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a bar is no reason to fail on an ASCII terminal
    require_verb(arguments, list(VERBS))
    options, unknown = build_parser().parse_known_args(arguments)
    if unknown:
        raise UsageError(
            f"{options.verb} does not take {' '.join(unknown)}",
            [f"see `evener {options.verb} --help`"],
        )
    return int(options.run(options))
