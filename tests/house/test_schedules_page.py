"""docs/schedules.md and its pictures say what the schedules do today."""

import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

from evener.cli import main
from evener.schedules import SCHEDULES

ROOT = Path(__file__).parents[2]
SECTION = re.compile(
    r"^## (?P<name>\w+)$.*?^- step (?P<step>[\d.]+), bubble (?P<bubble>[\d.]+) %.*?"
    r"^evener (?P<command>simulate .*?)$",
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", ROOT / "scripts/schedules_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_and_pictures_are_up_to_date(script: ModuleType) -> None:
    for path, text in script.files().items():
        assert path.exists(), f"run python scripts/schedules_page.py: {path}"
        assert path.read_text(encoding="utf-8") == text, (
            f"run python scripts/schedules_page.py: {path}"
        )


def test_there_is_no_picture_of_a_schedule_that_is_gone(script: ModuleType) -> None:
    drawn = {path.stem.removeprefix("schedule_") for path in script.PICTURES.glob("schedule_*")}
    assert drawn == set(SCHEDULES)


def test_the_commands_print_the_figures_beside_them(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = [match.groupdict() for match in SECTION.finditer(script.PAGE.read_text("utf-8"))]
    assert [section["name"] for section in sections] == list(SCHEDULES)
    for section in sections:
        words = shlex.split(f"{section['command']} --json")
        assert main(words) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["schedule"] == section["name"]
        num_updates = int(words[words.index("--updates") + 1]) if "--updates" in words else 1
        assert f"{printed['makespan'] / num_updates:g}" == section["step"]
        assert f"{printed['bubble_fraction']:.1%}" == f"{section['bubble']}%"
