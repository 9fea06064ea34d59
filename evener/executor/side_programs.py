"""Side programs: other programs that run in the bubbles and know nothing of it.

FreeRide's imperative interface (arXiv 2409.06941, section 4.2; see ``side_tasks``): what cannot be
cut into steps is a process of its own, which signals stop and continue.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from evener.executor.side_tasks import SideTask

_TICK_S = 0.001
_PATIENCE_S = 1.0


def side_program(name: str, command: Sequence[str], *, memory_bytes: int = 0) -> SideTask:
    """A program as a side task: started with the training, running in bubbles, else stopped.

    command: the program and its arguments, not for a shell.
    memory_bytes: see ``SideTask``.

    A step of the task is a millisecond in which the worker sleeps, so that the program may have its
    core.  Between bubbles the program is stopped wherever it is, with all processes that it has
    started; at the end of the training it is killed.  If the worker dies meanwhile, so does a
    stopped program.  One that ends with an exit code other than 0 is reported as failed.
    """
    program = _Program(command)
    return SideTask(
        name,
        program.step,
        create=program.create,
        start=program.resume,
        pause=program.pause,
        stop=program.kill,
        memory_bytes=memory_bytes,
    )


class _Program:
    """A process group that is stopped and continued as a whole."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        # In the session of the worker: only then does the kernel end a stopped group when nobody
        # is left who could continue it.
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, process_group=0)
        self.pause()

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def step(self) -> bool:
        time.sleep(_TICK_S)
        ended = self._state(os.WEXITED)
        if ended is not None and ended.si_status:
            raise RuntimeError(f"{self._command[0]} ended with {ended.si_status}")
        return ended is None

    def pause(self) -> None:
        """Return once the program has stopped or ended."""
        self._signal(signal.SIGSTOP)
        end_s = time.monotonic() + _PATIENCE_S
        while self._state(os.WSTOPPED | os.WEXITED) is None:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{self._command[0]} did not stop within {_PATIENCE_S:g} s")
            time.sleep(_TICK_S / 10)

    def kill(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "a task is created first"
        os.killpg(self._process.pid, number)

    def _state(self, kinds: int) -> os.waitid_result | None:
        assert self._process is not None, "a task is created first"
        # What has ended is kept (WNOWAIT) until it is killed, so that nobody else gets its number.
        return os.waitid(os.P_PID, self._process.pid, kinds | os.WNOHANG | os.WNOWAIT)
