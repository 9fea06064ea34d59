"""The sentences that say where a rank failed."""

import pytest

from evener.executor.failure import Place, Progress, failed, hangs, lost
from evener.executor.relay import read_place, write_place
from evener.ir.text import parse_action

IN_COMPUTE = Place(3, parse_action("2I5.1"))
WAITING = Place(3, parse_action("2B5"), parse_action("2RECV_B5>4"))
WHOLE_STAGE = Place(3, parse_action("2STEP"), parse_action("2REDUCE>4"))
OUTSIDE = Place(3)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            failed(IN_COMPUTE, KeyError("x")),
            "rank 3 failed in 2I5.1 (stage 2, microbatch 5): KeyError: 'x'",
        ),
        (
            hangs(WAITING, 3.0),
            (
                "rank 3 hangs in 2B5 (stage 2, microbatch 5), waiting for 2RECV_B5>4: "
                "no progress for 3 s"
            ),
        ),
        (
            lost(WHOLE_STAGE),
            "rank 3 was lost; it was last heard of in 2STEP (stage 2), waiting for 2REDUCE>4",
        ),
        (
            hangs(Place(3, parse_action("2STEP4")), 3.0),  # of update 4
            "rank 3 hangs in 2STEP4 (stage 2): no progress for 3 s",
        ),
        (lost(OUTSIDE), "rank 3 was lost; it was last heard of outside of a step"),
    ],
)
def test_texts(error, text: str) -> None:
    assert str(error) == text


def test_an_error_knows_its_place() -> None:
    error = lost(IN_COMPUTE)
    assert (error.rank, error.stage, error.microbatch, error.action) == (3, 2, 5, "2I5.1")
    error = lost(OUTSIDE)
    assert (error.rank, error.stage, error.microbatch, error.action) == (3, None, None, None)


@pytest.mark.parametrize("place", [IN_COMPUTE, WAITING, WHOLE_STAGE, OUTSIDE])
def test_a_place_travels_as_text(place: Place) -> None:
    assert read_place(3, write_place(place)) == place


def test_progress_is_a_place_that_moves() -> None:
    progress = Progress(3)
    assert progress.place == OUTSIDE
    progress.action = WAITING.action
    progress.awaited = WAITING.awaited
    assert progress.place == WAITING
