"""Print how big the source is and fail when a file or a function has outgrown its limit.

Usage: python scripts/size.py [--root DIR]
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("evener", "tests", "benchmarks", "examples", "scripts")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80


@dataclass(frozen=True)
class Span:
    """A file or a function and its number of lines."""

    name: str
    num_lines: int


@dataclass(frozen=True)
class Source:
    """One Python file, measured."""

    path: Path
    num_lines: int
    functions: tuple[Span, ...]

    @property
    def group(self) -> str:
        """The row of the table: the floor inside `evener`, else the folder."""
        parts = self.path.parts
        depth = 2 if parts[0] == "evener" else 1
        return "/".join(parts[:depth])


def measure(root: Path, path: Path) -> Source:
    """Measure one file; a function counts from its `def` to its last line."""
    text = (root / path).read_text(encoding="utf-8")
    functions = tuple(
        Span(f"{path}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return Source(path, len(text.splitlines()), functions)


def read_sources(root: Path) -> list[Source]:
    """Measure every Python file under the project's folders."""
    return [
        measure(root, path.relative_to(root))
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
    ]


def violations(sources: list[Source]) -> Iterator[str]:
    """Every file and function over its limit, as a sentence."""
    for source in sources:
        if source.num_lines > MAX_FILE_LINES:
            yield f"{source.path}: {source.num_lines} lines, at most {MAX_FILE_LINES}"
        for function in source.functions:
            if function.num_lines > MAX_FUNCTION_LINES:
                yield f"{function.name}: {function.num_lines} lines, at most {MAX_FUNCTION_LINES}"


def table(sources: list[Source]) -> str:
    """One row per floor or folder: files, lines, longest file, longest function."""
    rows = [f"{'':24}{'files':>7}{'lines':>8}{'longest file':>14}{'longest function':>18}"]
    for group in sorted({source.group for source in sources}):
        members = [source for source in sources if source.group == group]
        lengths = [function.num_lines for source in members for function in source.functions]
        rows.append(
            f"{group:24}{len(members):>7}{sum(m.num_lines for m in members):>8}"
            f"{max(m.num_lines for m in members):>14}{max(lengths, default=0):>18}"
        )
    total = sum(source.num_lines for source in sources)
    return "\n".join([*rows, f"{'total':24}{len(sources):>7}{total:>8}"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    sources = read_sources(parser.parse_args(argv).root)
    print(table(sources))
    found = list(violations(sources))
    for line in found:
        print(f"size: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
