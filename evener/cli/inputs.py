"""Files and flags that several verbs read."""

import argparse
from decimal import Decimal, InvalidOperation
from pathlib import Path

from evener.errors import UsageError
from evener.spec import ClusterSpec, JobSpec, ModelSpec, load_toml
from evener.spec.huggingface import model_from_hf_config


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        required=True,
        type=Path,
        metavar="FILE",
        help="TOML description, or a Hugging Face config.json",
    )


def add_cluster(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--cluster", required=required, type=Path, metavar="FILE", help="TOML description"
    )


def add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job", type=Path, metavar="FILE", help="TOML description (default: all defaults)"
    )


def add_profile(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--profile",
        required=required,
        type=Path,
        metavar="FILE",
        help="what `evener measure` has written",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def read_model(path: Path) -> ModelSpec:
    """A model from TOML, or from a Hugging Face configuration (JSON)."""
    if path.suffix == ".json":
        return model_from_hf_config(path)
    return load_toml(path, ModelSpec)


def read_cluster(path: Path) -> ClusterSpec:
    return load_toml(path, ClusterSpec)


def read_job(path: Path | None) -> JobSpec:
    return JobSpec() if path is None else load_toml(path, JobSpec)


def whole_number(text: str, flag: str, *, least: int = 1) -> int:
    """The number that a flag was given. Raises UsageError below ``least`` or if it is none."""
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f'{flag} "{text}" is not a whole number; give {least} or more') from None
    if value < least:
        raise UsageError(f"{flag} {value} is too small; give {least} or more")
    return value


def whole_numbers(text: str, flag: str) -> tuple[int, ...]:
    """The numbers of a list such as ``1,2,4``."""
    return tuple(sorted({whole_number(part, flag) for part in text.split(",")}))


def amount(text: str, flag: str) -> Decimal:
    """A number that is not negative. Raises UsageError that names the flag."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 0:
        raise UsageError(f'{flag} "{text}" is not a time; give a number of 0 or more')
    return value


def seconds(text: str, flag: str) -> float:
    """A positive number of seconds."""
    value = float(amount(text, flag))
    if value == 0:
        raise UsageError(f"{flag} 0 leaves no time; give more than 0 seconds")
    return value
