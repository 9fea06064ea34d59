"""Reports in a headless Chromium."""

import functools
import random
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.ir.timeline import Timeline
from evener.report import ReportData, Summary, build_report, write_report
from evener.schedules import SCHEDULES
from evener.schedules.shape import ScheduleShape
from evener.sim import simulate

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]

Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a report and, at the end of the test, asserts that the page asked for nothing."""
    opened: list[tuple[Page, list[str]]] = []

    def open_page(data: ReportData, width: int = 1600, height: int = 1000, **options: Any) -> Page:
        path = write_report(tmp_path / f"report{len(opened)}.html", data)
        size = {"width": width, "height": height}
        page = browser.new_context(viewport=size, **options).new_page()  # type: ignore[arg-type]
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                complaints.append(request.url) if request.url != path.as_uri() else None
            ),
        )
        opened.append((page, complaints))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        page.evaluate("async () => { window.viewer = await window.evenerReport; }")
        return page

    yield open_page
    for page, complaints in opened:
        page.context.close()
        assert complaints == []


@pytest.fixture(scope="session")
def report_of() -> Callable[..., ReportData]:
    return functools.cache(_report_of)


def _report_of(schedule: str, num_workers: int, num_microbatches: int, chunks: int) -> ReportData:
    """A prediction with unequal stages, and a measurement that is a few percent off."""
    shape = ScheduleShape(num_workers, num_microbatches, chunks)
    rng = random.Random(1)
    forward_ns = [rng.randrange(7_000_000, 11_000_000) for _ in range(shape.num_stages)]
    costs = CostTable.of_stages(
        num_workers,
        {
            Kind.F: forward_ns,
            Kind.I: forward_ns,
            Kind.W: [time_ns * 3 // 4 for time_ns in forward_ns],
            Kind.B: [time_ns * 7 // 4 for time_ns in forward_ns],
            Kind.STEP: [2_000_000] * shape.num_stages,
        },
        latency_ns=300_000,
        activation_bytes=[2**28] * shape.num_stages,
    )
    played = lower(SCHEDULES[schedule](shape))
    noise = [[[rng.uniform(0.98, 1.06)] for _ in forward_ns]]
    slower = replace(costs, time_ns=(costs.time_ns * noise).astype("int64"))
    return build_report(
        simulate(played, costs),
        measured=replace(simulate(played, slower), source="measured"),
        summary=Summary(f"{schedule} on {num_workers} workers", cap_bytes=(2**33,) * num_workers),
        losses=[5.0 - step / 50 for step in range(100)],
    )


@pytest.fixture
def two_workers() -> ReportData:
    """1F1B with F = 1 us, B = 2 us, messages of 1 us.

    Measured: 1B0 takes 1 us longer, so all that starts after 3 us is 1 us late.

    worker 0: F0 [0,1) F1 [1,2)              B0 [6,8) B1 [9,11)
    worker 1:          F0 [2,3) B0 [3,5) F1 [5,6) B1 [6,8)
    """
    rows = (
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1",
    )
    schedule = Schedule("by hand", 2, 2, tuple(tuple(map(parse_action, r.split())) for r in rows))
    start_ns = array("q", [1000 * t for t in (0, 1, 1, 2, 5, 6, 8, 9, 1, 2, 2, 3, 5, 5, 6, 8)])
    end_ns = array("q", [1000 * t for t in (1, 2, 2, 3, 6, 8, 9, 11, 2, 3, 3, 5, 6, 6, 8, 9)])
    late_ns = [0 if end <= 3000 else 1000 for end in end_ns]
    return build_report(
        Timeline("predicted", schedule, start_ns, end_ns),
        measured=Timeline(
            "measured",
            schedule,
            array("q", [s + late * (s > 3000) for s, late in zip(start_ns, late_ns, strict=True)]),
            array("q", [e + late for e, late in zip(end_ns, late_ns, strict=True)]),
        ),
        summary=Summary("Two workers"),
    )


@pytest.fixture
def every_kind() -> ReportData:
    """One action of each text form, one after the other on one worker."""
    texts = "0F0.0 0F0.1 0R0.0 0I0.1 0W0.1 0X:side-work 0B0.0 0GATHER 0RELEASE 0STEP 0REDUCE>1"
    row = tuple(map(parse_action, texts.split()))
    schedule = Schedule("every kind", 2, 1, (row,), num_slices=2)
    starts = range(0, 10 * len(row), 10)
    ends = [start + 10 for start in starts]
    timeline = Timeline("predicted", schedule, array("q", starts), array("q", ends))
    return build_report(timeline, summary=Summary("Every kind"))
