"""When a search stops: one small protocol and its implementations."""

import time
from typing import Protocol


class StoppingCriterion(Protocol):
    """Asked between two evaluations; True ends the search with the best plan so far."""

    def __call__(self, best_ns: int | None) -> bool: ...


class NeverStop:
    """Lets the search run to its own end."""

    def __call__(self, best_ns: int | None) -> bool:
        return False


class MaxRuntime:
    """Stops once a number of seconds has passed since the first question."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def __call__(self, best_ns: int | None) -> bool:
        now = time.monotonic()
        if self._end is None:
            self._end = now + self._seconds
        return now >= self._end
