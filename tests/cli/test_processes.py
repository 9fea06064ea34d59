"""What only a real process shows: no traceback, Ctrl-C, a closed pipe, a narrow terminal."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EVENER = [sys.executable, "-m", "evener"]
PLAN = "plan --model model.toml --cluster cluster.toml --job job.toml --profile profile.json"


def slow_search(seconds: float) -> str:
    """A program that is `evener` with so long a break before every plan that it tries."""
    return f"""
import sys, time
from evener.cli import main
from evener.planner import sweep

evaluate = sweep._Sweep._evaluate

def slowly(self, *arguments):
    print("one more plan", file=sys.stderr, flush=True)
    time.sleep({seconds})
    return evaluate(self, *arguments)

sweep._Sweep._evaluate = slowly
sys.exit(main(sys.argv[1:]))
"""


def evener(command: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EVENER, *command.split()], capture_output=True, text=True, check=False, **settings
    )


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running command, which is gone afterwards."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("verify nothing.json", "evener: nothing.json is not a plan that can be used:\n"),
        ("simulate --schedule gpipe --stages 0", "evener: --stages 0 is too small"),
        ("train plan.json --model model.toml --data text", "evener: 2 ranks are needed"),
    ],
)
def test_an_error_of_the_user_is_one_message(command: str, message: str, here: Path) -> None:
    result = evener(command)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.stderr


def test_ctrl_c_gives_the_best_plan_so_far(here: Path) -> None:
    with started("-c", slow_search(0.2), *PLAN.split(), "--json") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "one more plan\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=40)
    result = json.loads(out)
    assert process.returncode == 0
    assert "stopped" in result["status"].lower()
    assert result["plan"]["model"] == "tiny"


def test_a_second_ctrl_c_ends_the_search(here: Path) -> None:
    with started("-c", slow_search(30), *PLAN.split(), "--json") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "one more plan\n"
        process.send_signal(signal.SIGINT)
        time.sleep(1)  # two signals that arrive at once are one
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("evener: interrupted\n")
    assert "Traceback" not in err


@pytest.mark.dist
def test_ctrl_c_ends_all_processes_of_an_emulation(here: Path) -> None:
    command = "emulate --schedule gpipe --stages 2 --microbatches 2 --clock wall --unit 60000"
    with started("-m", "evener", *command.split()) as process:
        children = children_of(process.pid, number=2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
    assert (process.returncode, out, err) == (130, "", "evener: interrupted\n")
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def children_of(pid: int, *, number: int) -> list[str]:
    """Waits until a process has that many."""
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(children) >= number:
            return children
        time.sleep(0.05)


@pytest.mark.parametrize(
    "command", ["simulate --schedule gpipe", "--help", "report predicted.json"]
)
def test_a_closed_pipe_is_no_error(command: str, here: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [*EVENER, *command.split()], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full disk")
@pytest.mark.parametrize(
    "command", ["simulate --schedule gpipe --json", "simulate --schedule gpipe", "--help"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])  # the disk is full at the end, or at once
def test_a_full_disk_is_one_message(command: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*EVENER, *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    text = "the output cannot be written: No space left on device; send it to another place"
    assert (result.returncode, result.stderr) == (2, f"evener: {text}\n")


def test_a_closed_output_is_no_error() -> None:
    command = f"{sys.executable} -m evener simulate --schedule gpipe >&-"
    result = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_terminal_that_knows_only_ascii(here: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = evener("report predicted.json", env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "step time" in result.stdout


def test_progress_stays_off_the_output(here: Path) -> None:
    result = evener(f"{PLAN} --planner uniform")
    assert (result.returncode, result.stderr) == (0, "")
    assert re.match(r"schedule +one_f_one_b\n", result.stdout)
