"""Forked ranks: results, failures, time-outs, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from evener.errors import ExecutionError, UsageError
from evener.executor.launch import Rank, is_launched, rank_from_environment, run_workers
from evener.executor.launch import watch_workers as outcomes_of

pytestmark = pytest.mark.dist


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_results_come_back_by_rank() -> None:
    def describe(rank: Rank) -> tuple:
        rank.store.add("sum", rank.index)
        while int(rank.store.add("sum", 0)) < 3:
            time.sleep(0.001)
        rank.store.add("seen", 1)
        while rank.index == 0 and int(rank.store.add("seen", 0)) < 3:  # the store ends with it
            time.sleep(0.001)
        assert is_launched()
        return rank.index, rank.num_ranks, rank.local_index, os.environ["WORLD_SIZE"]

    assert run_workers(describe, 3) == [(0, 3, 0, "3"), (1, 3, 1, "3"), (2, 3, 2, "3")]
    assert not is_launched()


def test_an_exception_comes_back_with_its_traceback_and_rank() -> None:
    def fail(rank: Rank) -> None:
        if rank.index == 1:
            raise ValueError("boom")

    with pytest.raises(ExecutionError) as caught:
        run_workers(fail, 2)
    assert caught.value.header == "1 of 2 ranks failed"
    (text,) = caught.value.violations
    assert text.startswith("rank 1 after ")
    assert text.endswith("ValueError: boom\n")


def test_what_a_user_can_mend_comes_back_without_a_traceback() -> None:
    def refuse(rank: Rank) -> None:
        error = UsageError("no such thing", ["take another"])
        if rank.index == 1:
            raise ExecutionError(f"rank 1 failed: {error.header}") from error
        raise error

    with pytest.raises(ExecutionError) as caught:
        run_workers(refuse, 2)
    texts = sorted(text.partition(" s: ")[2] for text in caught.value.violations)
    assert texts == ["no such thing\n  take another", "rank 1 failed: no such thing"]


def test_every_way_to_end_is_told() -> None:
    def end(rank: Rank):
        if rank.index == 1:
            os._exit(3)
        if rank.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank.index == 3:
            return lambda: None  # cannot be pickled
        return "fine"

    first, second, third, fourth = outcomes_of(end, 4)
    assert (first.exit_code, first.result, first.error) == (0, "fine", None)
    assert (second.exit_code, second.error) == (3, "ended with exit code 3 and no result")
    assert (third.exit_code, third.error) == (-9, "killed by SIGKILL")
    assert (fourth.exit_code, fourth.result) == (1, None)


def test_a_process_that_a_rank_has_forked_is_not_waited_for() -> None:
    # As the workers of a data loader: rank 0 returns, rank 1 fails, rank 2 is killed.
    def end(rank: Rank) -> int:
        forked = os.fork()
        if forked == 0:
            time.sleep(20)
            os._exit(0)
        if rank.index == 1:
            raise UsageError("boom")
        if rank.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return forked

    began = time.monotonic()
    first, second, third = outcomes_of(end, 3, timeout_s=15)
    assert time.monotonic() - began < 10
    assert first.result is not None
    os.kill(first.result, signal.SIGKILL)
    assert (second.error, third.error) == ("boom", "killed by SIGKILL")


def test_who_takes_too_long_is_killed() -> None:
    def hang(rank: Rank) -> int:
        if rank.index == 1:
            time.sleep(60)
        return os.getpid()

    began = time.monotonic()
    fine, late = outcomes_of(hang, 2, timeout_s=0.5)
    assert time.monotonic() - began < 5
    assert fine.error is None
    assert late.error == "did not end in time and was killed"


def test_ranks_die_with_their_parent() -> None:
    # The parent prints its children's process ids and is then killed without a chance to clean up.
    code = """
import os, sys, time
from evener.executor.launch import run_workers
def work(rank):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
run_workers(work, 2)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        children = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    deadline = time.monotonic() + 5
    while any(map(is_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, children))


def test_ctrl_c_ends_all_ranks() -> None:
    code = """
import os, time
from evener.executor.launch import run_workers
def work(rank):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
try:
    run_workers(work, 2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        children = [int(parent.stdout.readline()) for _ in range(2)]
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to all of the group
        assert parent.stdout.readline() == "interrupted\n"
        assert not any(map(is_alive, children))


def test_a_process_that_was_not_launched_is_told_how(monkeypatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_PORT", "1234")
    with pytest.raises(UsageError) as caught:
        rank_from_environment()
    assert str(caught.value) == (
        "this process was not started as one of several ranks\n"
        "  RANK, LOCAL_RANK, MASTER_ADDR not set; start with "
        "`torchrun --nproc-per-node N -m evener train PLAN`"
    )


def test_the_environment_of_torchrun_is_read(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "from evener.executor.launch import rank_from_environment\n"
        "rank = rank_from_environment()\n"
        "rank.store.set(f'key{rank.index}', str(rank.local_index))\n"
        "other = rank.store.get(f'key{1 - rank.index}').decode()\n"
        "text = f'{rank.index} of {rank.num_ranks} at {rank.address} meets {other}\\n'\n"
        "os.write(1, text.encode())\n"
    )
    result = subprocess.run(
        [Path(sys.executable).with_name("torchrun"), "--standalone", "--nproc-per-node=2", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines())
    assert [line.split(" at ")[0] for line in lines] == ["0 of 2", "1 of 2"]
    assert [line.split(" meets ")[1] for line in lines] == ["1", "0"]


def test_process_groups_start_in_the_children_only() -> None:
    def add(rank: Rank) -> float:
        dist.init_process_group(
            "gloo", store=rank.store, rank=rank.index, world_size=rank.num_ranks
        )
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        return float(tensor)

    assert run_workers(add, 2) == [2.0, 2.0]
    assert not dist.is_initialized()
