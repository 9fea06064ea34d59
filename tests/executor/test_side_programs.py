"""Programs that are stopped between bubbles, with real processes under the real clock."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from evener.executor.side_programs import side_program
from evener.executor.side_tasks import SideTasks, State

MS = 1_000_000


def run_for(tasks: SideTasks, length_ns: int) -> None:
    now_ns = time.monotonic_ns()
    tasks.run_in(now_ns, now_ns + length_ns)


def becomes(condition: Callable[[], bool]) -> bool:
    """Within 5 s, as other processes may have the cores."""
    end_s = time.monotonic() + 5
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.001)
    return condition()


def is_gone(pid: int) -> bool:
    """Ended, whether or not somebody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_program_works_in_bubbles_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.touch()
    task = side_program("writer", ["sh", "-c", f"while :; do printf x; done > {out}"])
    with SideTasks([task]) as tasks:
        before = out.stat().st_size

        def writes() -> bool:
            run_for(tasks, 4 * MS)
            return out.stat().st_size > before

        assert becomes(writes)
        between = out.stat().st_size
        time.sleep(0.02)
        assert out.stat().st_size == between
        assert tasks.reports[0].state is State.PAUSED
    (report,) = tasks.reports
    assert (report.state, report.reason) == (State.STOPPED, None)
    assert report.num_steps > 0
    assert report.busy_ns >= report.num_steps * MS


def test_a_program_that_ends_is_done_and_may_have_failed() -> None:
    tasks = [side_program(code, ["sh", "-c", f"exit {code}"]) for code in ("0", "3")]
    tasks.append(side_program("none", ["/no/such/program"]))
    with SideTasks(tasks) as running:

        def all_stopped() -> bool:
            run_for(running, 4 * MS)
            return all(report.state is State.STOPPED for report in running.reports)

        assert becomes(all_stopped)
    done, failed, missing = running.reports
    assert done.reason is None
    assert failed.reason == "step raised RuntimeError: sh ended with 3"
    assert missing.reason is not None
    assert missing.reason.startswith("the way to created raised FileNotFoundError")


def test_what_a_program_has_started_is_stopped_and_killed_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    task = side_program("parent", ["sh", "-c", f"sleep 60 & echo $! > {pids}; wait"])
    with SideTasks([task]) as tasks:

        def has_started() -> bool:
            run_for(tasks, 4 * MS)
            return pids.exists() and bool(pids.read_text())

        assert becomes(has_started)
        child = int(pids.read_text())
        assert not is_gone(child)
    assert becomes(lambda: is_gone(child))


def test_a_stopped_program_does_not_outlive_its_worker(tmp_path: Path) -> None:
    own = tmp_path / "pid"
    task = side_program("sleeper", ["sh", "-c", f"echo $$ > {own}; exec sleep 60"])
    worker = os.fork()
    if worker == 0:
        with SideTasks([task]) as tasks:
            becomes(lambda: run_for(tasks, 4 * MS) or (own.exists() and bool(own.read_text())))
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(worker, 0)
    assert becomes(lambda: is_gone(int(own.read_text())))
