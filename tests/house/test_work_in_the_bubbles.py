"""docs/howto/work-in-the-bubbles.md: its program runs and prints what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evener.spec import JobSpec, load_toml, parse_toml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/work-in-the-bubbles.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, _, text in BLOCK.findall(PAGE) if found == language]


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    script = tmp_path / "bubbles.py"
    script.write_text("".join(blocks("python")), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert [run.stdout] == blocks("text")


def test_the_job_is_that_of_the_recipe() -> None:
    (shown,) = blocks("toml")
    recipe = load_toml(ROOT / "recipes/jobs/nemotron-side-work.toml", JobSpec)
    assert parse_toml(shown, JobSpec, file="page").side_work == recipe.side_work
