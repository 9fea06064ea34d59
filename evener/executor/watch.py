"""If one rank fails, all end: at once, and every one says which rank failed where.

Every rank holds a socket to a relay in rank 0's process.  A rank that fails says so there; of a
process that dies, however it dies, the kernel closes the socket.  A thread per rank listens and
ends its process, also while the main thread is stuck in gloo or NCCL.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from evener.errors import ExecutionError
from evener.executor.failure import Place, Progress, failed, hangs, interrupted, lost
from evener.executor.launch import Rank
from evener.executor.relay import Lines, Relay, read_place, write_place

_TICK_S = 0.2
_GRACE_S = 2.0  # for another rank's report, of which an error here may be the echo
_EXIT_S = 5.0  # for the main thread to end the process after its own error
_FAILED, _INTERRUPTED = 1, 130  # exit codes


class Watch:
    """``with Watch(rank, progress):`` around all in which a rank depends on the others.

    An exception inside is told to all ranks and leaves as an ExecutionError; whoever catches it
    has some seconds left to end the process, then it is ended.  If another rank fails, the process
    prints one line to stderr and ends with exit code 1.  Without failures all ranks leave together.

    KeyboardInterrupt leaves as it is.  Other ranks have some seconds for a Ctrl-C of their own,
    then they end with exit code 130.

    timeout_s: a rank whose place has not changed for so long hangs; where it waits for another,
        twice as long, so that the other one is named.
    at_end: called, by another thread, before this process is ended wherever its main thread is;
        takes no more than two seconds.
    """

    def __init__(
        self,
        rank: Rank,
        progress: Progress,
        *,
        timeout_s: float = 600.0,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self._rank = rank
        self._progress = progress
        self._timeout_s = timeout_s
        self._at_end = at_end
        self._place_of_relay = Place(0)
        self._told = threading.Event()  # everybody knows: all are done, or somebody failed
        self._leaves = threading.Event()  # after an error or Ctrl-C of its own
        self._thread = threading.Thread(target=self._listen, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        if self._rank.index == 0:
            Relay(self._rank).start()
        self._lines = Lines.connect(self._rank)
        self._lines.send("rank", str(self._rank.index))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                raise error
            if error is None:
                self._leave_together()
            else:
                self._fail(error)
        except KeyboardInterrupt:
            # torchrun sends a second one, which would cut off what is left to write.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._leave("interrupted", interrupted(self._rank.index), _INTERRUPTED)
            raise

    def _leave_together(self) -> None:
        self._lines.send("done")
        self._told.wait()
        self._thread.join()
        self._lines.close()

    def _fail(self, error: BaseException) -> None:
        if _may_be_an_echo(error):
            self._told.wait(_GRACE_S)  # if there was a report before this one, the process ends
        report = error if isinstance(error, ExecutionError) else failed(self._progress.place, error)
        self._leave("failure", report.header, _FAILED)
        if report is not error:
            raise report from error

    def _leave(self, word: str, text: str, exit_code: int) -> None:
        """Tell all ranks, and end the process later if the main thread does not."""
        self._leaves.set()
        self._lines.send(word, text)
        self._told.wait(_GRACE_S)
        timer = threading.Timer(_EXIT_S, self._end, (text, exit_code))
        timer.daemon = True
        timer.start()

    def _listen(self) -> None:
        """Until all are done: read what the relay says, tell it where this rank is."""
        seen = None
        since_s = time.monotonic()
        while not self._told.is_set():
            for word, text in self._lines.receive(_TICK_S):
                self._hear(word, text)
            progress = self._progress
            now = (progress.step, progress.action, progress.awaited)
            if now != seen:
                seen, since_s = now, time.monotonic()
                self._lines.send("place", write_place(progress.place))
            elif progress.action is not None:
                patience_s = self._timeout_s * (1 if progress.awaited is None else 2)
                if time.monotonic() - since_s > patience_s:
                    report = hangs(progress.place, patience_s)
                    self._lines.send("failure", report.header)
                    since_s = time.monotonic()

    def _hear(self, word: str, text: str) -> None:
        if self._told.is_set():
            return
        if word == "place":
            self._place_of_relay = read_place(0, text)
        elif word == "done" or self._leaves.is_set():
            self._told.set()
        elif word == "failure":
            self._end_with(text)
        elif word == "interrupted":
            if not self._leaves.wait(_GRACE_S):
                self._end_with(text, _INTERRUPTED)
            self._told.set()
        else:
            assert word == "closed", word
            self._end_with(lost(self._place_of_relay).header)

    def _end_with(self, text: str, exit_code: int = _FAILED) -> None:
        self._end(f"rank {self._rank.index} ends: {text}", exit_code)

    def _end(self, text: str, exit_code: int) -> None:
        """End the process, whatever its main thread is stuck in."""
        with suppress(OSError):
            os.write(2, f"{text}\n".encode())
        if self._at_end is not None:
            last = threading.Thread(target=self._at_end, daemon=True)
            last.start()
            last.join(_GRACE_S)
        os._exit(exit_code)


def _may_be_an_echo(error: BaseException) -> bool:
    """Whether an error may come from another rank's end: gloo and NCCL raise RuntimeErrors."""
    return isinstance(error.__cause__ if isinstance(error, ExecutionError) else error, RuntimeError)
