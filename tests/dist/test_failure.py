"""If one rank fails in whatever way, all end soon and say where it was."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evener.executor.clock import WallClock
from evener.executor.emulate import StandIn
from evener.executor.failure import Progress
from evener.executor.launch import Outcome, Rank, watch_workers
from evener.executor.loop import Loop
from evener.executor.torch_transport import TorchTransport
from evener.executor.transport import connections
from evener.executor.watch import Watch
from evener.interp.worker import WorkerProgram
from evener.ir.action import Action
from evener.ir.passes import lower
from evener.schedules import ScheduleShape, one_f_one_b

pytestmark = pytest.mark.dist

NUM_RANKS = 3
VICTIM, MICROBATCH = 1, 2
LIMIT_S = 10.0

Mishap = Callable[[], None]


class FailingEngine(StandIn):
    """Does something bad when it runs one action."""

    def __init__(self, fatal: str, mishap: Mishap) -> None:
        self._fatal = fatal
        self._mishap = mishap

    def run(self, action: Action) -> None:
        if str(action) == self._fatal:
            self._mishap()


def end_with(
    fatal: str, mishap: Mishap, *, timeout_s: float = 600.0, launch_timeout_s: float = 30.0
) -> list[Outcome]:
    """Run 1F1B in three ranks until one of them comes to the fatal action."""
    schedule = lower(one_f_one_b(ScheduleShape(NUM_RANKS, 4)), clip=True)

    def work(rank: Rank) -> None:
        progress = Progress(rank.index)
        with Watch(rank, progress, timeout_s=timeout_s):
            pairs, groups = connections(schedule)
            transport = TorchTransport(
                rank.store,
                worker=rank.index,
                num_workers=rank.num_ranks,
                pairs=pairs,
                groups=groups,
            )
            program = WorkerProgram(schedule, rank.index)
            loop = Loop(
                program,
                engine=FailingEngine(fatal, mishap),
                transport=transport,
                clock=WallClock(program),
                progress=progress,
            )
            loop.run_step()
            transport.close()

    return watch_workers(work, NUM_RANKS, timeout_s=launch_timeout_s)


def assert_all_ended(outcomes: list[Outcome], *, within_s: float = LIMIT_S) -> None:
    assert all(outcome.exit_code != 0 for outcome in outcomes)
    assert max(outcome.seconds for outcome in outcomes) < within_s


def raise_value_error() -> None:
    raise ValueError("boom")


def test_an_exception_ends_all_ranks(capfd) -> None:
    outcomes = end_with("1F2", raise_value_error)
    assert_all_ended(outcomes, within_s=3)
    text = "rank 1 failed in 1F2 (stage 1, microbatch 2): ValueError: boom"
    assert outcomes[VICTIM].error is not None
    assert f"ExecutionError: {text}" in outcomes[VICTIM].error
    assert sorted(capfd.readouterr().err.splitlines()) == [
        f"rank 0 ends: {text}",
        f"rank 2 ends: {text}",
    ]


def test_a_torch_error_is_not_taken_for_an_echo(capfd) -> None:
    # gloo reports a lost neighbour by a RuntimeError, and so does torch a wrong shape.
    def wrong_shapes() -> None:
        torch.ones(2) @ torch.ones(3)

    outcomes = end_with("1F2", wrong_shapes)
    assert_all_ended(outcomes)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("rank 1 failed in 1F2 (stage 1, microbatch 2): RuntimeError: " in x for x in lines)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_rank_ends_all_ranks(victim: int, capfd) -> None:
    # The place of a rank travels every 0.2 s: give it time to be known.
    def die() -> None:
        time.sleep(0.7)
        os.kill(os.getpid(), signal.SIGKILL)

    outcomes = end_with(f"{victim}B2", die)
    assert_all_ended(outcomes, within_s=5)
    text = (
        f"rank {victim} was lost; it was last heard of in {victim}B2 (stage {victim}, microbatch 2)"
    )
    assert outcomes[victim].error == "killed by SIGKILL"
    assert sorted(capfd.readouterr().err.splitlines()) == [
        f"rank {rank} ends: {text}" for rank in range(NUM_RANKS) if rank != victim
    ]


def test_an_exit_without_a_word_ends_all_ranks(capfd) -> None:
    outcomes = end_with("2F0", lambda: os._exit(0))
    assert all(outcomes[rank].exit_code == 1 for rank in (0, 1))
    assert max(outcome.seconds for outcome in outcomes) < 5
    assert all("rank 2 was lost" in line for line in capfd.readouterr().err.splitlines())


def test_a_hanging_rank_ends_all_ranks(capfd) -> None:
    outcomes = end_with("1F2", lambda: time.sleep(60), timeout_s=1.0)
    assert_all_ended(outcomes)
    text = "rank 1 hangs in 1F2 (stage 1, microbatch 2): no progress for 1 s"
    assert sorted(capfd.readouterr().err.splitlines()) == [
        f"rank {rank} ends: {text}" for rank in range(NUM_RANKS)
    ]


def test_a_stopped_rank_is_found_by_those_who_wait_for_it(capfd) -> None:
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    outcomes = end_with("2F1", stop, timeout_s=1.0, launch_timeout_s=6.0)
    # The stopped process cannot end itself: the launcher does, as torchrun would.
    assert outcomes[2].error == "did not end in time and was killed"
    assert all(outcomes[rank].exit_code == 1 for rank in (0, 1))
    assert max(outcomes[rank].seconds for rank in (0, 1)) < 5
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(" hangs in " in line and ", waiting for " in line for line in lines)


def test_an_error_that_is_caught_still_ends_the_process() -> None:
    def work(rank: Rank) -> None:
        try:
            with Watch(rank, Progress(rank.index)):
                if rank.index == 1:
                    raise ValueError("boom")
                time.sleep(60)
        except ValueError:
            time.sleep(60)

    outcomes = watch_workers(work, 2, timeout_s=30)
    assert_all_ended(outcomes)


def test_without_failures_all_leave_together() -> None:
    def work(rank: Rank) -> float:
        with Watch(rank, Progress(rank.index)):
            time.sleep(0.1 * rank.index)
        return time.monotonic()

    outcomes = watch_workers(work, 4, timeout_s=20)
    left = [outcome.result for outcome in outcomes]
    assert [outcome.exit_code for outcome in outcomes] == [0] * 4
    assert None not in left
    assert max(left) - min(left) < 0.25


def test_under_torchrun_the_first_message_is_ours(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import time
from evener.executor.failure import Progress
from evener.executor.launch import rank_from_environment
from evener.executor.watch import Watch
from evener.ir.text import parse_action

rank = rank_from_environment()
progress = Progress(rank.index)
with Watch(rank, progress):
    progress.action = parse_action(f"{rank.index}F2")
    if rank.index == 1:
        raise ValueError("boom")
    time.sleep(60)
"""
    )
    torchrun = Path(sys.executable).with_name("torchrun")
    result = subprocess.run(
        [torchrun, "--standalone", "--nproc-per-node=2", script],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if "rank 1" in line]
    assert lines[0].endswith("rank 1 failed in 1F2 (stage 1, microbatch 2): ValueError: boom")
