"""How verbs print: one line of JSON, or text for people; files; and progress while they work."""

import errno
import fcntl
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from evener.errors import UsageError


def print_json(values: Mapping[str, Any]) -> None:
    """One object in one line; null for what JSON has no word for, such as a loss of NaN."""
    print(json.dumps(_finite(values), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_text(text: str) -> None:
    print(text, flush=True)


def print_table(rows: Mapping[str, str]) -> None:
    """Names and values, the values in one column."""
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name.ljust(width)}  {value}")


def require_writable(path: Path | None, flag: str = "--out") -> None:
    """Raise UsageError if a file cannot be written there, before the work that it would hold.

    path: None if the flag was not given.
    """
    if path is None:
        return
    try:
        if path.is_dir():
            raise UsageError(f"{flag} {path} is a folder; name a file")
        place = next(place for place in (path, *path.absolute().parents) if place.exists())
    except OSError as error:
        raise UsageError(_unwritable(path, flag, error)) from None
    if place != path and not place.is_dir():
        raise UsageError(f"{flag} {path} is below {place.name}, which is a file; name another")
    if not os.access(place, os.W_OK):
        raise UsageError(f"{flag} {path} may not be written; name another place")


def write_file(path: Path, text: str, flag: str = "--out") -> None:
    """Write ``text``, making folders as needed. Raises UsageError if it cannot be written."""
    with writing(path, flag):
        path.write_text(text, encoding="utf-8")


def replace_file(path: Path, text: str, flag: str = "--out") -> None:
    """The same, but a reader, or who ends this process, finds the old text or the new one."""
    with writing(path, flag):
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)


@contextmanager
def held_alone(folder: Path, flag: str = "--out") -> Iterator[None]:
    """Make a folder and keep other processes that ask the same out of it; it is free at the end.

    The lock is the kernel's, so it ends with the process however that ends. Where a file system
    has none, nobody is kept out.

    Raises UsageError if another process has it.
    """
    with writing(folder / "any", flag):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(_held(folder, flag)) from None
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.EBADF, errno.EINVAL):
                raise
        yield
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: Path, flag: str = "--out") -> Iterator[None]:
    """Make the folder of a file; what the system has against the file becomes a UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(_unwritable(path, flag, error)) from None


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


def _held(folder: Path, flag: str) -> str:
    return f"{flag} {folder} is being written by another run; name another place, or wait"


def _unwritable(path: Path, flag: str, error: OSError) -> str:
    name = str(path) if len(str(path)) <= 80 else f"{str(path)[:80]}..."
    return f"{flag} {name} cannot be written: {error.strerror}; name another place"


def warn(text: str | None) -> None:
    """Say on the error stream what does not stop the work; nothing if there is nothing to say."""
    if text is not None:
        print(f"evener: warning: {text}", file=sys.stderr)
