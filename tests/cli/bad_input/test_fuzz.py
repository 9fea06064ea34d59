"""Files that are broken at random end in exit code 0 or 2, with nothing but a message."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.cli import main

MEASURE = "measure --model model.toml --cluster cluster.toml --job job.toml --dry-run"
PLAN = "plan --model model.toml --cluster cluster.toml --job job.toml --profile profile.json"
SIMULATE = "simulate plan.json --profile profile.json --cluster cluster.toml"
COMMANDS = {
    "model.toml": f"{MEASURE} --json",
    "cluster.toml": MEASURE,
    "job.toml": f"{PLAN} --dry-run",
    "profile.json": SIMULATE,
    "plan.json": f"{SIMULATE} --json",
    "predicted.json": "report predicted.json measured.json",
    "measured.json": "report predicted.json measured.json --json",
    "losses.json": "report predicted.json --losses losses.json",
}
STRANGE = (
    "-1", "0", "1e308", "1e-308", "9223372036854775807", "9223372036854775808", "1" + "0" * 30,
    "1" + "0" * 400, "1" + "0" * 5000,
    "NaN", "inf", "true", "null", '""', '"a"', "[]", "{}", "[[1]]", "1.5", "\\u0000", "'", "💥",
)  # fmt: skip

_VALUE = re.compile(rb'"[^"\n]*"|-?[0-9][0-9.]*')


def flip_byte(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def cut_off(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def drop_line(data: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[random.randrange(len(lines))]
    return b"".join(lines)


def double_line(data: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    place = random.randrange(len(lines))
    return b"".join([*lines[:place], lines[place], *lines[place:]])


def exchange_value(data: bytes, random: Random) -> bytes:
    """One value by another one of the file, or by a strange one."""
    values = list(_VALUE.finditer(data))
    old = random.choice(values)
    new = random.choice([random.choice(values)[0], random.choice(STRANGE).encode()])
    return data[: old.start()] + new + data[old.end() :]


def exchange_word(data: bytes, random: Random) -> bytes:
    """Two words of the file, such as two actions of a schedule, change places."""
    words = list(re.finditer(rb"[\w.:]+", data))
    one, other = (words[place] for place in sorted(random.sample(range(len(words)), 2)))
    return (
        data[: one.start()] + other[0] + data[one.end() : other.start()]
        + one[0] + data[other.end() :]
    )  # fmt: skip


BREAKERS = (flip_byte, cut_off, drop_line, double_line, exchange_value, exchange_word)


def broken(data: bytes, breakers: list[Callable[[bytes, Random], bytes]], seed: int) -> bytes:
    random = Random(seed)
    for breaker in breakers:
        if len(_VALUE.findall(data)) > 1:  # else there is nothing left to break
            data = breaker(data, random)
    return data


@pytest.fixture(scope="module")
def answer(good_files: Path) -> Callable[[str, bytes], int]:
    """Puts a text in the place of one file and runs the command that reads it."""
    originals = {name: (good_files / name).read_bytes() for name in COMMANDS}

    def run(name: str, data: bytes) -> int:
        before = Path.cwd()
        os.chdir(good_files)
        try:
            Path(name).write_bytes(data)
            return main(COMMANDS[name].split())
        finally:
            Path(name).write_bytes(originals[name])
            os.chdir(before)

    return run


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    name=st.sampled_from(sorted(COMMANDS)),
    breakers=st.lists(st.sampled_from(BREAKERS), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_no_broken_file_ends_in_a_traceback(answer, good_files, name, breakers, seed) -> None:
    data = broken((good_files / name).read_bytes(), breakers, seed)
    assert answer(name, data) in (0, 2)
