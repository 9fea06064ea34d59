"""The README and the documentation tell the truth: commands, paths and links."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evener.spec import ClusterSpec, JobSpec, ModelSpec, parse_toml

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

ANY_TEXT = re.compile(r"(?<!\S)\.\.\.(?!\S)")


def name_of(page: Path) -> str:
    """The page as a test's id."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Command:
    """One `$ command` of a console block and the output that the page promises."""

    line: int
    command: str
    output: tuple[str, ...]


def read_commands(page: Path) -> Iterator[Command]:
    """Yield the commands of every ```console block, which by our convention are all run."""
    lines = page.read_text(encoding="utf-8").splitlines()
    inside, start, command, output = False, 0, "", []
    for number, raw in enumerate(lines, 1):
        line = raw.strip() if raw.lstrip().startswith("```") else raw
        if line.startswith("```") or (inside and line.startswith("$ ")):
            if command:
                yield Command(start, command, tuple(output))
            start, command, output = number, line.removeprefix("$ "), []
            if line.startswith("```"):
                inside, command = line == "```console", ""
        elif inside:
            output.append(line)


def matches(expected: tuple[str, ...], actual: list[str]) -> bool:
    """Compare; a line `...` stands for any number of lines, a word `...` for any text."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line.strip() == "..."
        else ".*".join(map(re.escape, ANY_TEXT.split(line.rstrip()))) + r"\n"
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in actual)) is not None


PAGES_WITH_COMMANDS = [page for page in PAGES if any(read_commands(page))]


@pytest.mark.dist
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=name_of)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
    }
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    for command in read_commands(page):
        result = subprocess.run(
            command.command,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        # Whether the machine was quiet enough to measure is not the page's business.
        warnings = "evener: warning:"
        printed = [
            line
            for line in (result.stdout + result.stderr).splitlines()
            if not line.startswith(warnings)
        ]
        assert matches(command.output, printed), (
            f"{page.relative_to(ROOT)}:{command.line}: $ {command.command}\n" + "\n".join(printed)
        )


def test_a_wrong_output_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one; echo two\none\n...\n$ echo x\ny\n```\n", "utf-8")
    first, second = read_commands(page)
    assert (first.line, first.command, first.output) == (2, "echo one; echo two", ("one", "..."))
    assert matches(first.output, ["one", "two"])
    assert matches(first.output, ["one"])
    assert matches(("a ... d",), ["a b c d"])
    assert not matches(("a ... d",), ["a b c"])
    assert not matches(("a....d",), ["a b d"])
    assert not matches(first.output, ["two", "one"])
    assert not matches(second.output, ["x"])


TOML_BLOCK = re.compile(r"```toml(?: title=\"(\w+)\.toml\")?\n(.*?)```", re.DOTALL)
SPEC_TYPES = {"model": ModelSpec, "cluster": ClusterSpec, "job": JobSpec}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_descriptions_are_valid(page: Path) -> None:
    """Every TOML block has a title and is read without complaint."""
    for title, text in TOML_BLOCK.findall(page.read_text(encoding="utf-8")):
        parse_toml(text, SPEC_TYPES[title], file=name_of(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_paths_exist(page: Path) -> None:
    """A path in backticks is there; a line that says `planned` may name what is to come."""
    missing = [
        f"{page.name}:{number}: {path}"
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if "planned" not in line
        for path in re.findall(
            r"`((?:evener|tests|docs|recipes|scripts|constraints|examples|benchmarks)/[\w./-]*)`",
            line,
        )
        if not (ROOT / path).exists()
    ]
    assert not missing


@pytest.fixture(scope="module")
def verbs() -> set[str]:
    """The words of `evener --help`."""
    result = subprocess.run(
        [sys.executable, "-m", "evener", "--help"], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"\w+", result.stdout))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_named_in_the_text_exist(page: Path, verbs: set[str]) -> None:
    """Every `evener VERB` and `make TARGET` that a page names can be typed."""
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    assert not set(re.findall(r"^(?:\$ )?evener (\w+)", text, re.MULTILINE)) - verbs
    assert not set(re.findall(r"`make ([\w-]+)`", text)) - targets


def test_the_actions_page_is_the_rules_table() -> None:
    spec = importlib.util.spec_from_file_location("actions_page", ROOT / "scripts/actions_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), (
        "run python scripts/actions_page.py"
    )


def test_news_fragments_are_read_by_towncrier() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    fragments = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    for fragment in fragments:
        issue, kind, *_ = fragment.name.split(".")
        assert issue.isdigit()
        assert kind in {"feature", "fix", "change"}
        first_line = fragment.read_text(encoding="utf-8").splitlines()[0]
        assert first_line in result.stdout
