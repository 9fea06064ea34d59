"""Files and flags that several verbs read."""

import argparse
import os
from collections.abc import Iterable
from decimal import Context, Decimal, InvalidOperation
from pathlib import Path

from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.ir.plan import Plan
from evener.spec import ClusterSpec, JobSpec, ModelSpec, load_toml
from evener.spec.complaints import closest
from evener.spec.huggingface import model_from_hf_config
from evener.units import too_many_digits

_LARGEST = 10**12
_MOST_DECIMALS = 60
_FINEST = Decimal(10) ** -_MOST_DECIMALS
_EXACT = Context(prec=12 + 1 + _MOST_DECIMALS)  # as many digits as a number of these limits has
_MOST_PROCESSES = 64


def add_plan(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "plan",
        nargs=None if required else "?",
        type=Path,
        metavar="PLAN",
        help="what `evener plan` has written",
    )


def add_model(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--model",
        required=required,
        type=Path,
        metavar="FILE",
        help="TOML description, or a Hugging Face config.json or its folder",
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
    """A model from TOML, or from a Hugging Face configuration (JSON, or the folder that has it)."""
    if path.suffix == ".json" or path.is_dir():
        return model_from_hf_config(path)
    return load_toml(path, ModelSpec)


def read_model_of(plan: Plan, path: Path | None) -> ModelSpec | None:
    """The plan's model, None if no file was given. Raises PlanError if it is another one."""
    if path is None:
        return None
    model = read_model(path)
    plan.require_model(model)
    return model


def read_cluster(path: Path) -> ClusterSpec:
    return load_toml(path, ClusterSpec)


def read_job(path: Path | None) -> JobSpec:
    return JobSpec() if path is None else load_toml(path, JobSpec)


def whole_number(text: str, flag: str, *, least: int = 1) -> int:
    """The number that a flag was given. Raises UsageError below ``least`` or if it is none."""
    if too_many_digits(text, most=100):
        raise UsageError(f"{flag} {text[:80]}... is too large; give {_LARGEST} or less")
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f'{flag} "{text}" is not a whole number; give {least} or more') from None
    if not least <= value <= _LARGEST:
        limit = f"{least} or more" if value < least else f"{_LARGEST} or less"
        raise UsageError(
            f"{flag} {value} is too {'small' if value < least else 'large'}; give {limit}"
        )
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
    if value > _LARGEST:
        raise UsageError(f"{flag} {text} is too large; give {_LARGEST} or less")
    if value != value.quantize(_FINEST, context=_EXACT):
        raise UsageError(f"{flag} {text[:80]} is too fine; give at most {_MOST_DECIMALS} decimals")
    return value


def positive(text: str, flag: str) -> Decimal:
    """A number above 0. Raises UsageError that names the flag."""
    value = amount(text, flag)
    if value == 0:
        raise UsageError(f"{flag} 0 leaves no time; give more than 0")
    return value


def require_name(name: str, known: Iterable[str], what: str) -> None:
    """Raise UsageError unless a name is one of those that are known."""
    if name not in known:
        raise UsageError(f'there is no {what} "{name}"{closest(name, known)}')


def require_few(num_workers: int, verb: str) -> None:
    """Raise UsageError for more workers than one machine should have as processes."""
    if num_workers > _MOST_PROCESSES:
        raise UsageError(
            f"{num_workers} workers are {num_workers} processes on this machine; {verb} at most"
            f" {_MOST_PROCESSES}, or use `evener simulate`"
        )


def require_ranks(num_workers: int, command: str) -> None:
    """Raise UsageError unless this process is one of as many ranks of torchrun.

    Looks at the environment alone: ranks that are not there cannot be waited for.
    """
    num_ranks = os.environ.get("WORLD_SIZE", "none")
    way_out = f"start it with: torchrun --nproc-per-node {num_workers} -m evener {command} ..."
    if num_ranks != str(num_workers):
        raise UsageError(f"{num_workers} ranks are needed, but there are {num_ranks}; {way_out}")
    rank = os.environ.get("RANK", "not set")
    if not rank.isdecimal() or too_many_digits(rank) or int(rank) >= num_workers:
        raise UsageError(f"RANK is {rank}, but must be 0 to {num_workers - 1}; {way_out}")


def shared_out(job: JobSpec, profile: Profile) -> str | None:
    """A sentence, if slices are to be cut by times that were not measured."""
    lengths = {each.sequence_length for each in profile.slice_latencies}
    if job.slices == 1 or job.sequence_length in lengths:
        return None
    return (
        "the profile has no times of slices, so TeraPipe cuts by those of whole microbatches, "
        "shared out by operations; measure with slices in the job"
    )
