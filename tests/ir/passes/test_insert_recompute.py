"""R in front of every backward."""

from itertools import pairwise

import pytest

from evener.ir.action import Kind
from evener.ir.check import check
from evener.ir.passes import insert_recompute
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import SCHEDULES, ScheduleShape


def schedule(*rows: str) -> Schedule:
    workers = tuple(tuple(map(parse_action, row.split())) for row in rows)
    return Schedule("test", len(rows), 2, workers)


def test_every_backward_has_its_repetition_in_front() -> None:
    whole = schedule("0F0 0F1 0B0 0I1 0W1", "1F0 1B0 1F1 1B1")
    repeated = schedule("0F0 0F1 0R0 0B0 0R1 0I1 0W1", "1F0 1R0 1B0 1F1 1R1 1B1")
    assert insert_recompute(whole) == repeated
    assert insert_recompute(repeated) is repeated


def test_nothing_comes_between_a_braid() -> None:
    """STP runs a forward and a backward as one: the R of that backward stands before both."""
    whole = SCHEDULES["stp"](ScheduleShape(2, 6, chunks_per_worker=2))
    repeated = insert_recompute(whole)
    rows = [*map(pairwise, repeated.workers)]
    behind = [second.kind for row in rows for first, second in row if first in whole.braids]
    assert behind
    assert Kind.R not in behind


@pytest.mark.parametrize("name", [n for n, e in SCHEDULES.items() if not e.asynchronous])
def test_every_schedule_may_recompute(name: str) -> None:
    entry = SCHEDULES[name]
    shapes = [ScheduleShape(2, 6, chunks_per_worker=chunks) for chunks in (1, 2)]
    for shape in shapes:
        if entry.unsupported(shape) is None:
            check(insert_recompute(entry(shape)))
