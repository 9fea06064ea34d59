"""Files and functions stay small, and the check would notice if they did not."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_size(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "size.py", "--root", root],
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_file_and_no_function_is_too_long() -> None:
    result = run_size(ROOT)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n" * 500, ""),
        ("x = 1\n" * 501, "evener/long.py: 501 lines, at most 500"),
        ("def f():\n" + "    x = 1\n" * 79, ""),
        ("def f():\n" + "    x = 1\n" * 80, "evener/long.py:1 f: 81 lines, at most 80"),
    ],
)
def test_the_limits(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "evener").mkdir()
    (tmp_path / "evener" / "long.py").write_text(text, encoding="utf-8")
    result = run_size(tmp_path)
    assert result.returncode == (1 if message else 0)
    assert message in result.stderr
