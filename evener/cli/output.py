"""How verbs print: one line of JSON, or text for people; and progress while they work."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from evener.errors import UsageError


def print_json(values: Mapping[str, Any]) -> None:
    print(json.dumps(values))


def print_text(text: str) -> None:
    print(text)


def print_table(rows: Mapping[str, str]) -> None:
    """Names and values, the values in one column."""
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name.ljust(width)}  {value}")


def write_file(path: Path, text: str) -> None:
    """Write ``text``, making folders as needed. Raises UsageError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}; give another --out"
        ) from None


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A bar on the terminal's error stream, so that the output stays clean."""
    console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[news]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(title, total=None, news="")
        yield progress
