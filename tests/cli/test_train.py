"""What a training leaves on disk while it runs, when it is killed, and beside another one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from evener.cli.output import held_alone, replace_file
from evener.errors import UsageError

TRAIN = "train plan.json --model model.toml --data text --out run --steps 1000000"


@contextmanager
def training() -> Iterator[list[subprocess.Popen[str]]]:
    """Both ranks, as torchrun would start them; they are gone afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with ExitStack() as stack:
        outputs = [stack.enter_context(Path(f"rank{rank}.out").open("w")) for rank in "01"]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "evener", *TRAIN.split()],
                env={**os.environ, **place, "RANK": r, "LOCAL_RANK": r, "OMP_NUM_THREADS": "1"},
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
            )
            for r, output in zip("01", outputs, strict=True)
        ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            assert rank.stderr is not None
            rank.stderr.close()


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_a_training_that_is_killed_leaves_its_losses(here: Path) -> None:
    folder, losses = Path("run"), Path("run/losses.json")
    folder.mkdir()
    (folder / "measured.json").write_text("of a run before")
    with training() as ranks:
        while not (losses.exists() and len(json.loads(losses.read_text())) > 1):
            assert ranks[0].poll() is None, ranks[0].communicate()
            time.sleep(0.05)
        with pytest.raises(UsageError) as caught, held_alone(folder):
            raise AssertionError("it is free while a training writes there")
    assert str(caught.value) == (
        "--out run is being written by another run; name another place, or wait"
    )
    left = json.loads(losses.read_text())
    assert len(left) > 1
    assert all(0 < loss < 10 for loss in left)
    assert not (folder / "measured.json").exists()
    with held_alone(folder):  # the lock has ended with its process
        pass


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize("stopped", [(0, 1), (0,), (1,)])
def test_ctrl_c_of_a_training_is_no_failure(stopped: tuple[int, ...], here: Path) -> None:
    with training() as ranks:
        wait_for_losses(ranks[0])
        for rank in stopped:
            ranks[rank].send_signal(signal.SIGINT)
        errors = [rank.communicate(timeout=10)[1] for rank in ranks]
        codes = [rank.returncode for rank in ranks]
    assert_all_losses_are_written()
    expected = [
        "evener: interrupted\n"
        if rank in stopped
        else f"rank {rank} ends: rank {1 - rank} was interrupted\n"
        for rank in range(2)
    ]
    assert (codes, errors) == ([130, 130], expected)


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_the_end_of_another_rank_leaves_all_losses(here: Path) -> None:
    with training() as ranks:
        wait_for_losses(ranks[0])
        ranks[1].kill()
        _, error = ranks[0].communicate(timeout=10)
    assert ranks[0].returncode != 0
    assert "rank 1 was lost" in error
    assert_all_losses_are_written()


def wait_for_losses(rank: subprocess.Popen[str]) -> None:
    """Until the file is there and some more are not yet in it."""
    while not Path("run/losses.json").exists():
        assert rank.poll() is None, rank.communicate()
        time.sleep(0.05)
    time.sleep(0.3)


def assert_all_losses_are_written() -> None:
    """A loss is recorded just before its step is printed, so that the last may not be printed."""
    num_steps = Path("rank0.out").read_text().count("step ")
    assert len(json.loads(Path("run/losses.json").read_text())) - num_steps in (0, 1)


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with held_alone(folder):
        assert folder.is_dir()
        with pytest.raises(UsageError, match="is being written by another run"), held_alone(folder):
            raise AssertionError("it is not free")
    with held_alone(folder):
        assert list(folder.iterdir()) == []


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "losses.json"
    for text in ("[1.0, 2.0]", "[1]"):
        replace_file(path, text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]
