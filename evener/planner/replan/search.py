"""A search for a plan in a process of its own, beside a training that must not wait for it."""

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TypeAlias

from evener.errors import EvenerError
from evener.planner.find_plan import find_plan
from evener.planner.problem import Problem
from evener.planner.result import PlanResult
from evener.planner.stop import MaxRuntime

_GRACE_S = 60.0  # for planners that look at the clock only now and then, and for the start
_LONGEST_S = 1e6  # eleven days; the system cannot wait for much more at once
_LOOK_EVERY_S = 1.0
_NICENESS = 10

Answer: TypeAlias = PlanResult | str
"""A plan, or a sentence that says why there is none."""


class Search:
    """Starts at once; its process is nice, has one thread and no torch, and ends with this one.

    answer: None as long as there is none.
    """

    def __init__(self, problem: Problem, planner: str, *, time_limit_s: float) -> None:
        self.answer: Answer | None = None
        self._question = pickle.dumps((problem, planner, time_limit_s))
        self._time_limit_s = time_limit_s
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        one = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **one, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the training
        )
        self._thread = threading.Thread(target=self._wait, name="search", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        process, limit_s = self._process, min(self._time_limit_s + _GRACE_S, _LONGEST_S)
        try:
            out, err = process.communicate(self._question, timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.answer = f"it did not end within {limit_s:g} s"
            return
        if process.returncode == 0:
            self.answer = pickle.loads(out)
            return
        said = err.decode(errors="replace").strip().splitlines()
        self.answer = f"its process ended with {process.returncode}: {said[-1] if said else ''}"

    def close(self) -> None:
        """End the search if it runs."""
        self._process.kill()
        self._thread.join()


def main() -> None:
    """Answer one question that comes pickled on the standard input."""
    os.nice(_NICENESS)
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # Whatever a planner prints must not get into the answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    problem, planner, time_limit_s = pickle.load(sys.stdin.buffer)
    answer: Answer
    try:
        answer = find_plan(
            problem.model,
            problem.cluster,
            problem.job,
            problem.profile,
            planner=planner,
            stop=MaxRuntime(time_limit_s),
        )
    except EvenerError as error:
        answer = str(error)
    with answers:
        pickle.dump(answer, answers)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    main()
