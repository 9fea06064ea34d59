"""Ranks: found in torchrun's environment, or forked from this process."""

import ctypes
import os
import pickle
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import torch
from torch.distributed import (  # type: ignore[attr-defined]  # exported, but not so declared
    Store,
    TCPStore,
    rendezvous,
)

from evener.errors import EvenerError, ExecutionError, UsageError

Result = TypeVar("Result")

LOOPBACK = "127.0.0.1"
_PR_SET_PDEATHSIG = 1
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """One process of several that work together.

    index: its number, 0 to num_ranks - 1. local_index: the same within its machine.
    address: of rank 0's machine. store: where they all meet.
    """

    index: int
    num_ranks: int
    local_index: int
    address: str
    store: Store


def is_launched() -> bool:
    """Whether this process was started by torchrun or alike."""
    return "RANK" in os.environ


def rank_from_environment(*, timeout_s: float = 300.0) -> Rank:
    """The rank that torchrun gave to this process; waits until all are there.

    Raises UsageError that names the variables that are missing.
    """
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing:
        raise UsageError(*_not_launched(missing))
    store, index, num_ranks = next(rendezvous("env://", timeout=timedelta(seconds=timeout_s)))
    return Rank(
        index=index,
        num_ranks=num_ranks,
        local_index=int(os.environ["LOCAL_RANK"]),
        address=os.environ["MASTER_ADDR"],
        store=store,
    )


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """How a forked rank ended.

    result: what its function returned. error: a traceback, or how the process died.
    exit_code: of the process; a negative one is the signal that killed it. seconds: it lived.
    """

    exit_code: int
    seconds: float
    result: Result | None = None
    error: str | None = None


def run_workers(
    function: Callable[[Rank], Result], num_workers: int, *, timeout_s: float = 60.0
) -> list[Result]:
    """Run ``function`` in ``num_workers`` forked processes; returns their results by rank.

    Forking after import starts 16 ranks in half a second. The results travel pickled. Every child
    is gone when this returns or raises, also on Ctrl-C and if this process is killed.

    Raises ExecutionError with the traceback of every rank that failed, or that all took too long.
    """
    outcomes = watch_workers(function, num_workers, timeout_s=timeout_s)
    failures = sorted(
        (outcome.seconds, rank, outcome.error)
        for rank, outcome in enumerate(outcomes)
        if outcome.error is not None
    )
    if failures:
        texts = [f"rank {rank} after {seconds:.1f} s: {text}" for seconds, rank, text in failures]
        raise ExecutionError(f"{len(failures)} of {num_workers} ranks failed", texts)
    return [outcome.result for outcome in outcomes]  # type: ignore[misc]


def watch_workers(
    function: Callable[[Rank], Result], num_workers: int, *, timeout_s: float = 60.0
) -> list[Outcome[Result]]:
    """The same as ``run_workers``, but tells how every rank ended instead of raising."""
    sys.stdout.flush()
    sys.stderr.flush()
    with socket.create_server((LOOPBACK, 0), backlog=num_workers) as listener:
        children: list[_Child] = []
        try:
            for index in range(num_workers):
                children.append(_fork(function, index, num_workers, listener))
            listener.close()  # rank 0 has it; if that dies, the others must not wait here
            return _collect(children, time.monotonic() + timeout_s)
        finally:
            _kill(children)


class _Child:
    """A forked process, the pipe on which its result comes, and how it ended."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.started_s = time.monotonic()
        self.data = bytearray()
        self.outcome: Outcome[Any] | None = None

    def reap(self, error: str | None = None) -> None:
        """Wait for the process, which has closed its pipe or was killed for this reason."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        exit_code = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - self.started_s
        if self.data and error is None:
            result, error = pickle.loads(self.data)
            self.outcome = Outcome(exit_code, seconds, result, error)
        else:
            self.outcome = Outcome(exit_code, seconds, error=error or _died(exit_code))


def _kill(children: list[_Child]) -> None:
    """End the processes that have not ended yet."""
    left = [child for child in children if child.outcome is None]
    for child in reversed(left):  # rank 0 last: the others would report its loss
        os.kill(child.pid, signal.SIGKILL)
    for child in left:
        child.reap("did not end in time and was killed")


def _collect(children: list[_Child], deadline_s: float) -> list[Outcome[Any]]:
    """Wait for all children; those that are not done at the deadline are killed."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline_s - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                child = key.data
                data = os.read(child.pipe, 1 << 20)
                child.data += data
                if not data:
                    selector.unregister(child.pipe)
                    child.reap()
    _kill(children)
    return [child.outcome for child in children if child.outcome is not None]


def _fork(
    function: Callable[[Rank], Any], index: int, num_ranks: int, listener: socket.socket
) -> _Child:
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be_child(function, index, num_ranks, listener, writing, parent)
    os.close(writing)
    return _Child(pid, reading)


def _be_child(
    function: Callable[[Rank], Any],
    index: int,
    num_ranks: int,
    listener: socket.socket,
    pipe: int,
    parent: int,
) -> NoReturn:
    """Run one rank; whatever happens, the process ends here."""
    exit_code = 1
    # A process that this one forks would hold the pipe open, and the parent waits for its end.
    os.register_at_fork(after_in_child=partial(os.close, pipe))
    try:
        _die_with(parent)
        # Ctrl-C reaches the whole terminal group; the parent alone decides what follows.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        rank = _join(index, num_ranks, listener)
        try:
            answer: tuple[Any, str | None] = (function(rank), None)
            exit_code = 0
        except BaseException as error:
            answer = (None, _told(error))
        with os.fdopen(pipe, "wb") as stream:
            stream.write(pickle.dumps(answer))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        exit_code = 1
    finally:
        os._exit(exit_code)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _join(index: int, num_ranks: int, listener: socket.socket) -> Rank:
    port = listener.getsockname()[1]
    os.environ.update(
        RANK=str(index),
        LOCAL_RANK=str(index),
        WORLD_SIZE=str(num_ranks),
        MASTER_ADDR=LOOPBACK,
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo" if sys.platform == "linux" else "lo0",
    )
    # Rank 0 serves on the socket that the parent has bound: no other process can take the port.
    if index == 0:
        descriptor: int | None = os.dup(listener.fileno())
    else:
        descriptor = None
    listener.close()
    store = TCPStore(
        LOOPBACK,
        port,
        num_ranks,
        is_master=index == 0,
        timeout=timedelta(seconds=60),
        wait_for_workers=True,
        master_listen_fd=descriptor,
    )
    return Rank(index, num_ranks, index, LOOPBACK, store)


def _told(error: BaseException) -> str:
    """A traceback; of what a user can mend, the message alone."""
    cause = error.__cause__ if isinstance(error, ExecutionError) else error
    return str(error) if isinstance(cause, EvenerError) else traceback.format_exc()


def _died(exit_code: int) -> str:
    if exit_code < 0:
        name = str(-exit_code)
        with suppress(ValueError):
            name = signal.Signals(-exit_code).name
        return f"killed by {name}"
    return f"ended with exit code {exit_code} and no result"


def _not_launched(missing: list[str]) -> tuple[str, list[str]]:
    text = (
        f"{', '.join(missing)} not set; start with "
        "`torchrun --nproc-per-node N -m evener train PLAN`"
    )
    return "this process was not started as one of several ranks", [text]
