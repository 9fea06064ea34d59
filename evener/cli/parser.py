"""How the command line is read: argparse, with our errors and an example for every verb."""

import argparse
import textwrap
from typing import Any, NoReturn, TypeAlias

from evener.errors import UsageError
from evener.spec.complaints import closest

Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


class Parser(argparse.ArgumentParser):
    """Turns what argparse finds wrong into our own error, printed like every other one."""

    def __init__(self, **settings: Any) -> None:
        # An abbreviation would change its meaning with every new flag.
        super().__init__(
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **settings,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, [f"see `{self.prog} --help`"])

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own keeps quiet about a full disk.
        print(message, end="", file=file)


def add_verb(verbs: Verbs, name: str, *, does: str, about: str, example: str) -> Parser:
    """The parser of one verb.

    does: one line for the list of verbs. about: what it reads and writes, a line per paragraph.
    example: a whole call.
    """
    return verbs.add_parser(
        name,
        help=does,
        description="\n".join(textwrap.fill(line, 96) for line in about.splitlines()),
        epilog=f"example:\n  {example}",
    )


def require_verb(arguments: list[str], known: list[str]) -> None:
    """Raise UsageError if the first argument should be a verb and is none."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in known:
        raise UsageError(f'there is no verb "{arguments[0]}"{closest(arguments[0], known)}')
