"""The page of compared schedules in a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from evener.planner.compare import EqualWorld, compare
from evener.report.comparison import Measures, write_comparison
from evener.schedules import SCHEDULES, StageTimes

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """4 workers, 8 microbatches; nothing may be logged, nothing requested but the page."""
    names = ("gpipe", "one_f_one_b", "zb_h1", "interleaved_one_f_one_b")
    found = compare(
        EqualWorld(4, 8, StageTimes(2, 2, 2)),
        chunks=(1,),
        schedules={name: SCHEDULES[name] for name in names},
    )
    path = tmp_path / "compare.html"
    write_comparison(path, found, Measures(time=str, memory=str), title="Four")
    page = browser.new_context().new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(path.as_uri())
    yield page
    page.context.close()
    assert complaints == [path.as_uri()]


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"tbody tr > :nth-child({number})").all_inner_texts()


def test_sorts_by_the_heading_that_is_clicked(page: Page) -> None:
    # ZB-H1 8 x 6 + 3 x 2, all others (8 + 3) x 6
    assert column(page, 3) == ["54", "66", "66", "66"]
    heading = page.get_by_role("columnheader", name="peak memory")
    heading.get_by_role("button").click()
    # of 2 bytes each: 1F1B and ZB-H1 hold 4, interleaved with one chunk 7, GPipe 8
    assert column(page, 6) == ["8", "8", "14", "16"]
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.get_by_role("button").click()
    assert column(page, 6) == ["16", "14", "8", "8"]
    page.get_by_role("columnheader", name="schedule").get_by_role("button").click()
    assert column(page, 1) == ["gpipe", "interleaved_one_f_one_b", "one_f_one_b", "zb_h1"]


def test_a_name_leads_to_its_picture(page: Page) -> None:
    page.get_by_role("link", name="zb_h1").click()
    assert page.url.endswith("#schedule-0")
    assert page.locator("#schedule-0 svg title").text_content() == "zb_h1, predicted"
    assert page.locator("section.picture svg").count() == 4
