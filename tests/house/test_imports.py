"""What is loaded when, and from whom."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "safetensors", "transformers"}:
            raise ModuleNotFoundError(f"{name} is blocked")

sys.meta_path.insert(0, NoTorch())
"""

IMPORT_ALL = """
import importlib, pathlib
for path in sorted(pathlib.Path("evener").rglob("*.py")):
    parts = path.with_suffix("").parts
    if parts[1] not in {"modules", "profiler", "executor", "testing"}:
        name = ".".join(part for part in parts if part != "__init__")
        importlib.import_module(name)
"""

HELP = """
import sys
import evener.cli
try:
    evener.cli.main(["--help"])
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_import_evener_loads_no_torch() -> None:
    result = run_python("import sys, evener; sys.exit('torch' in sys.modules)")
    assert result.returncode == 0, result.stderr


def test_help_of_the_command_line_loads_no_torch() -> None:
    result = run_python(HELP)
    assert result.returncode == 0, result.stderr
    assert "simulate" in result.stdout


def test_all_that_plans_imports_on_a_machine_without_torch() -> None:
    result = run_python(WITHOUT_TORCH + IMPORT_ALL)
    assert result.returncode == 0, result.stderr


# pydantic requires one exact version of it, so naming it apart would only be in the way.
COMES_WITH = {"pydantic_core": "pydantic"}


def imported_packages() -> Iterator[tuple[str, Path]]:
    for path in (ROOT / "evener").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [node.module]
            else:
                continue
            for name in names:
                package = name.partition(".")[0]
                yield COMES_WITH.get(package, package), path.relative_to(ROOT)


def test_every_imported_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["train"]]
    declared = {re.split(r"[<>=!~ ]", text)[0] for text in requirements}
    providers = importlib.metadata.packages_distributions()
    undeclared = {
        f"{path} imports {name}"
        for name, path in imported_packages()
        if name != "evener"
        and name not in sys.stdlib_module_names
        and not declared & {provider.lower() for provider in providers.get(name, [name])}
    }
    assert not undeclared


@pytest.mark.parametrize("word", ["utils", "util", "common", "base", "core", "helpers", "misc"])
def test_no_module_has_a_name_that_says_nothing(word: str) -> None:
    assert not [path for path in (ROOT / "evener").rglob("*") if path.stem == word]


def test_nothing_is_left_open_in_the_package() -> None:
    pattern = re.compile(r"NotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b")
    assert not [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "evener").rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
