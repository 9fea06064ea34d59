"""Two workers in a pipeline, with times that can be followed by hand."""

from array import array
from collections.abc import Callable, Sequence

import pytest

from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.ir.timeline import Timeline

MakeTimeline = Callable[..., Timeline]


@pytest.fixture
def make_timeline() -> MakeTimeline:
    def make(
        rows: Sequence[str],
        start_ns: Sequence[int],
        end_ns: Sequence[int],
        *,
        source: str = "predicted",
        memory_bytes: Sequence[int] = (),
        peak_bytes: tuple[int, ...] = (),
        num_microbatches: int = 2,
    ) -> Timeline:
        workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
        num_stages = 1 + max(action.stage for row in workers for action in row)
        return Timeline(
            source,
            Schedule("by hand", num_stages, num_microbatches, workers),
            array("q", start_ns),
            array("q", end_ns),
            array("q", memory_bytes),
            peak_bytes,
        )

    return make


@pytest.fixture
def predicted(make_timeline: MakeTimeline) -> Timeline:
    """1F1B with F = 1 us, B = 2 us, messages of 1 us without latency.

    worker 0: F0 [0,1) F1 [1,2) idle             B0 [6,8)  B1 [9,11)
    worker 1:          F0 [2,3) B0 [3,5) F1 [5,6) B1 [6,8)
    messages: F0 [1,2), F1 [2,3), B0 [5,6), B1 [8,9)
    """
    us = 1000
    return make_timeline(
        [
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
            "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1",
        ],
        [us * t for t in (0, 1, 1, 2, 5, 6, 8, 9, 1, 2, 2, 3, 5, 5, 6, 8)],
        [us * t for t in (1, 2, 2, 3, 6, 8, 9, 11, 2, 3, 3, 5, 6, 6, 8, 9)],
        memory_bytes=[2, 2, 3, 3, 3, 2, 2, 1, 1, 2, 2, 1, 1, 2, 1, 1],
        peak_bytes=(3, 2),
    )


@pytest.fixture
def measured(make_timeline: MakeTimeline, predicted: Timeline) -> Timeline:
    """The same step twice as slow, begun at 500 ns on the clock of the run."""
    rows = [" ".join(map(str, row)) for row in predicted.schedule.workers]
    return make_timeline(
        rows,
        [500 + 2 * t for t in predicted.start_ns],
        [500 + 2 * t for t in predicted.end_ns],
        source="measured",
    )
