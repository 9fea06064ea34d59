"""docs/howto/add-a-schedule.md is carried out: its file, its lines and its commands."""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from evener.schedules import ScheduleEntry, ScheduleShape
from evener.testing.conformance import SHAPES, SLICED_SHAPES, check_makespan

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/add-a-schedule.md"
SIX = ScheduleShape(2, 6)
BLOCK = re.compile(r"^```(\w+) title=\"(.*?)\"\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[tuple[str, str]]:
    """(title, text) of the blocks of one language."""
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [(title, text) for language, title, text in found if language == kind]


def apply_diff(path: Path, diff: str) -> None:
    """Insert each line with a plus behind the line above it, which the file must have once."""
    lines = path.read_text(encoding="utf-8").splitlines()
    above = ""
    for line in diff.splitlines():
        if line.startswith(" "):
            above = line[1:]
            assert lines.count(above) == 1, f"{path.name} has no line of its own: {above}"
        elif line.startswith("+"):
            lines.insert(lines.index(above) + 1, line[1:])
            above = line[1:]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with the page's changes; what does not change is linked."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("tests", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    schedules = folder / "evener/schedules"
    schedules.mkdir(parents=True)
    for source, target in (("evener", folder / "evener"), ("evener/schedules", schedules)):
        for path in (ROOT / source).iterdir():
            if path.name not in {"schedules", "registry.py", "__pycache__"}:
                (target / path.name).symlink_to(path)
    (schedules / "registry.py").write_bytes((ROOT / "evener/schedules/registry.py").read_bytes())
    for title, text in blocks("python"):
        (folder / title).write_text(text, encoding="utf-8")
    for title, text in blocks("diff"):
        apply_diff(folder / title, text)
    return folder


@pytest.mark.timeout(240)
def test_commands_print_what_the_page_shows(tree: Path, tmp_path: Path) -> None:
    docs = load("docs_of_the_house", ROOT / "tests/house/test_docs.py")
    page = tmp_path / "page.md"
    page.write_text("".join(f"```console\n{text}```\n" for _, text in blocks("console")))
    commands = list(docs.read_commands(page))
    assert len(commands) == 3
    for command in commands:
        result = subprocess.run(
            command.command,
            shell=True,
            cwd=tree,
            env={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "PYTHONPATH": str(tree),
                "HOME": os.environ.get("HOME", str(tmp_path)),
                "COLUMNS": "100",
                "NO_COLOR": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        printed = (result.stdout + result.stderr).splitlines()
        assert result.returncode == 0, "\n".join(printed)
        assert docs.matches(command.output, printed), "\n".join([command.command, *printed])


def test_a_broken_promise_reads_as_the_page_says(tree: Path) -> None:
    module = load("gpipe_in_groups", tree / "evener/schedules/gpipe_in_groups.py")
    entry: ScheduleEntry = module.GPIPE_IN_GROUPS
    shape = ScheduleShape(2, 5)
    check_makespan(entry, shape)
    # 3 groups of 2, 2 and 1: (3 + 3 + 2) x (1 + 2); with a last one of 2 it would be 9 x 3
    forgetful = replace(entry, makespan_ns=lambda shape, times: entry.makespan_ns(SIX, times))
    with pytest.raises(AssertionError) as caught:
        check_makespan(forgetful, shape)
    page = PAGE.read_text(encoding="utf-8")
    (shown,) = re.findall(r"^AssertionError: (.*)$", page, re.MULTILINE)
    assert re.fullmatch(".*".join(map(re.escape, shown.split("..."))), str(caught.value))


def test_the_number_of_shapes() -> None:
    shapes = len((*SHAPES, *SLICED_SHAPES))
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"for {shapes} shapes, {len(SLICED_SHAPES)} of them with token slices," in text
