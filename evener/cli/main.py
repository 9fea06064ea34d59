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

_NEEDS_TORCH = (
    "this verb needs torch, which is not installed; from a checkout: pip install '.[train]',"
    " without a GPU: pip install -c constraints/cpu.txt '.[train]'"
)

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
            if sys.stdout is not None:  # None if this process was started with it closed
                sys.stdout.flush()
    except (EvenerError, UnitError) as error:
        print(f"evener: {error}", file=sys.stderr)
        return USER_ERROR
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print(f"evener: {_NEEDS_TORCH}", file=sys.stderr)
        return USER_ERROR
    except MemoryError:
        print("evener: there is not enough memory for this; ask for less", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("evener: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has closed it
        _silence_output()
        return 0
    except OSError as error:
        if error.filename is not None:  # it is about a file, not about the output
            raise
        _silence_output()
        print(f"evener: {_not_printed(error)}", file=sys.stderr)
        return USER_ERROR


def _silence_output() -> None:
    """Let what is left to print go nowhere; Python would complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _not_printed(error: OSError) -> str:
    return f"the output cannot be written: {error.strerror}; send it to another place"


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
