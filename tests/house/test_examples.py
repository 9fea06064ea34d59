"""Examples print what stands beside them, and pictures are those that the code draws."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTPUTS = sorted((ROOT / "examples").glob("*.out"))


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda path: path.stem)
def test_example_prints_its_output(output):
    run = subprocess.run(
        [sys.executable, str(output.with_suffix(".py"))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout == output.read_text(encoding="utf-8")


def test_pictures_are_up_to_date(capsys):
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts/pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.pictures().items():
        assert path.read_text(encoding="utf-8") == text, f"run python scripts/pictures.py: {path}"
