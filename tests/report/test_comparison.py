"""The comparison of schedules as text and as a page."""

import re
from dataclasses import replace

import pytest

from evener.planner.compare import EqualWorld, compare
from evener.report.comparison import Measures, comparison_html, comparison_text, measures_of
from evener.schedules import SCHEDULES, StageTimes

MEASURES = Measures(time=str, memory=str, note="times in beats")


@pytest.fixture
def found():
    """2 workers, 2 microbatches, F = I = W = 2, room for one microbatch of 2 bytes."""
    names = ("gpipe", "zb_1p")
    world = EqualWorld(2, 2, StageTimes(2, 2, 2), cap_bytes=2)
    return compare(world, chunks=(1,), schedules={name: SCHEDULES[name] for name in names})


def test_text(found):
    # ZB-1P takes F F I I W, 2 each, for one microbatch and then for the other; a worker works 12;
    # worker 1 waits for one forward, so 14 is the bound
    lines = comparison_text(found, MEASURES).splitlines()
    assert [" ".join(line.split()) for line in lines if "─" not in line] == [
        "schedule stages step time bubble gap peak memory in flight messages gradient sums",
        "zb_1p 2 20 40.0 % 42.9 % 2 1 4 0",
        "",
        "no schedule can take less than 14; times in beats",
        "",
        "refused",
        "gpipe, 2 stages: holds 2 microbatches on a worker, the cap is 1",
    ]


def test_sizes_of_messages_have_a_column_where_they_are_known(found):
    measures = replace(MEASURES, message_size=lambda size: f"{size} B")
    heading, _, row, *_ = comparison_text(found, measures).splitlines()
    assert heading.index("sent") < row.index("0 B") + 3 == heading.index("sent") + 4


def test_a_column_has_one_unit():
    # GPipe takes (2 + 1) x 400 us, and (1 + 1) x 400 with one microbatch less
    times = StageTimes(100_000, 200_000, 100_000)
    found = compare(EqualWorld(2, 2, times), schedules={"gpipe": SCHEDULES["gpipe"]})
    measures = measures_of(found)
    assert (measures.time(1_200_000), measures.time(800_000)) == ("1.200 ms", "0.800 ms")
    assert measures.memory(4) == "4 B"


def test_page_needs_no_other_file(found):
    page = comparison_html(found, MEASURES, title="<Two workers>")
    assert "<h1>&lt;Two workers&gt;</h1>" in page
    assert "{{" not in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert page.count("<svg") == len(found.compared) == 1
    assert "holds 2 microbatches on a worker, the cap is 1" in page


def test_page_without_refusals_has_no_such_section(found):
    page = comparison_html(replace(found, refused=()), MEASURES, title="x")
    assert "Refused" not in page


def test_what_is_too_fine_is_not_drawn():
    # 2 workers x 600 microbatches x (F, B, messages) are more than 5000 actions
    world = EqualWorld(2, 700, StageTimes(2, 2, 2))
    found = compare(world, chunks=(1,), schedules={"gpipe": SCHEDULES["gpipe"]})
    page = comparison_html(found, MEASURES, title="x")
    assert "<svg" not in page
    assert "More than 5,000 actions: not drawn." in page
