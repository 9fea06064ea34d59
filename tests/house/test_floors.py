"""The floors hold, and the contracts that say so would notice if they did not."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

# The three floors that touch tensors, and the ones above them that may call them lazily.
MAY_REACH_TORCH = {"modules", "profiler", "executor", "testing", "api", "cli", "__main__"}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy_of_package(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(
        ROOT / "evener", tmp_path / "evener", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def contracts() -> list[dict[str, object]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, object]] = settings["tool"]["importlinter"]["contracts"]
    return found


def floors() -> set[str]:
    return {
        path.stem if path.suffix == ".py" else path.name
        for path in (ROOT / "evener").iterdir()
        if path.suffix == ".py" or list(path.glob("*.py"))
    } - {"__init__"}


def test_imports_only_go_down() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


def test_every_folder_is_a_package() -> None:
    """A folder without `__init__.py` is invisible to the contracts."""
    folders = {path.parent for path in (ROOT / "evener").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def test_every_floor_is_either_free_of_torch_by_contract_or_named_here() -> None:
    by_contract = {
        str(module).removeprefix("evener.")
        for contract in contracts()
        if contract["type"] == "forbidden" and not contract.get("allow_indirect_imports", False)
        for module in contract["source_modules"]  # type: ignore[attr-defined]
    }
    assert by_contract == floors() - MAY_REACH_TORCH


@pytest.mark.parametrize(
    ("floor", "statement", "broken"),
    [
        ("planner", "import evener.report", "Floors: imports only go down"),
        ("ir", "import evener.sim", "Floors: imports only go down"),
        ("report", "import evener.export", "Floors: imports only go down"),
        ("sim", "import torch", "Only modules, profiler and executor load torch"),
        (
            "report",
            "import evener.modules.layers",
            "Only modules, profiler and executor load torch",
        ),
        ("api", "import torch", "The top floors reach torch only through the floors below"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    copy_of_package: Path, floor: str, statement: str, broken: str
) -> None:
    target = copy_of_package / "evener" / floor
    if target.is_dir():
        (target / "intruder.py").write_text(f"{statement}\n", encoding="utf-8")
    else:
        with target.with_suffix(".py").open("a", encoding="utf-8") as file:
            file.write(f"\n{statement}\n")
    result = lint_imports(copy_of_package)
    assert result.returncode == 1, result.stdout
    assert f"{broken} BROKEN" in result.stdout


def test_a_folder_without_a_floor_breaks_the_contract(copy_of_package: Path) -> None:
    (copy_of_package / "evener" / "attic").mkdir()
    (copy_of_package / "evener" / "attic" / "__init__.py").touch()
    result = lint_imports(copy_of_package)
    assert result.returncode == 1, result.stdout
    assert "attic" in result.stdout
