"""The page in a browser. Every test also asserts that nothing was logged and nothing requested."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from evener.cost.table import CostTable
from evener.ir.text import parse_schedule
from evener.report import ReportData, Summary, build_report
from evener.report.waits import path_to, waited_for
from evener.sim import simulate

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

Open = Callable[..., Page]

PLACE_OF = """([place, text]) => {
  const { model, scene } = viewer;
  const { view, layout } = scene;
  const timeline = model.timelines[place];
  const index = timeline.start.findIndex((_, i) => timeline.schedule.text(i) === text);
  const lane = layout.lanes[place];
  const box = document.getElementById("lanes").getBoundingClientRect();
  const time = (timeline.start[index] + timeline.end[index]) / 2;
  return [
    box.left + layout.gutter + (time - view.from) * layout.plotWidth / (view.to - view.from),
    box.top + 26 + timeline.schedule.workerOf[index] * layout.rowHeight - scene.scroll
      + lane.top + (model.kinds[timeline.schedule.kind[index]].computes
        ? lane.height * [1 / 2, 1 / 4, 3 / 4][timeline.half[index] + 1]
        : lane.height + lane.strip / 4),
  ];
}"""


def move_to(page: Page, text: str, timeline: int = 0) -> tuple[float, float]:
    """Put the pointer on an action."""
    page.locator("#lanes").scroll_into_view_if_needed()
    x, y = page.evaluate(PLACE_OF, [timeline, text])
    page.mouse.move(x, y)
    return x, y


def rows_of(page: Page, where: str) -> dict[str, str]:
    """What a tooltip or the details under the lanes say."""
    terms = page.locator(f"{where} dt").all_inner_texts()
    return dict(zip(terms, page.locator(f"{where} dd").all_inner_texts(), strict=True))


def view(page: Page) -> tuple[float, float]:
    """The visible time in nanoseconds."""
    page.wait_for_timeout(40)  # a frame
    found = page.evaluate("viewer.scene.view")
    return found["from"], found["to"]


def colour_at(page: Page, x: float, y: float) -> list[int]:
    """Red, green and blue of the lanes at a place of the window."""
    found: list[int] = page.evaluate(
        """([x, y]) => {
          const canvas = document.getElementById("lanes");
          const box = canvas.getBoundingClientRect();
          viewer.drawNow();
          const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
          pixel.drawImage(canvas, x - box.left, y - box.top, 1, 1, 0, 0, 1, 1);
          const at = pixel.getImageData(0, 0, 1, 1);
          return [...at.data.slice(0, 3)];
        }""",
        [x, y],
    )
    return found


def test_hover_tells_times_cause_and_difference(open_report: Open, two_workers: ReportData) -> None:
    page = open_report(two_workers)
    move_to(page, "1F0")
    assert page.locator("#tip p").inner_text() == "1F0 forward, stage 1, microbatch 0"
    assert rows_of(page, "#tip") == {
        "worker": "1, predicted",
        "start": "2 us",
        "end": "3 us",
        "duration": "1 us",
        "waited for": "1RECV_F0 after 0F0 on worker 0, until 2 us",
        "idle before": "2 us",
        "measured": "exactly as predicted",
    }
    move_to(page, "1B0", timeline=1)
    assert rows_of(page, "#tip") == {
        "worker": "1, measured",
        "start": "3 us",
        "end": "6 us",
        "duration": "3 us",
        "waited for": "1F0, until 3 us",
        "measured": "starts on time, takes 1 us longer (+50.0 %) than predicted",
    }
    move_to(page, "1F1")
    assert rows_of(page, "#tip")["measured"] == "starts 1 us later, takes as long as predicted"
    move_to(page, "0SEND_F1")
    assert page.locator("#tip p").inner_text() == "0SEND_F1 send activations, stage 0, microbatch 1"
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()


def test_both_actions_of_a_braid_are_seen_and_hit(open_report: Open) -> None:
    timeline = simulate(parse_schedule(BRAIDED), CostTable.uniform(1, 2, backward_ns=2))
    page = open_report(build_report(timeline, summary=Summary("braided")))
    first = move_to(page, "0F1")
    assert page.locator("#tip p").inner_text() == "0F1 forward, stage 0, microbatch 1"
    second = move_to(page, "1B0")
    assert page.locator("#tip p").inner_text() == "1B0 backward, stage 1, microbatch 0"
    assert first[0] == second[0]
    assert colour_at(page, first[0] + 9, first[1]) != colour_at(page, second[0] + 9, second[1])


BRAIDED = """# schedule braided
# stages 2
# microbatches 2
0F0 1F0 (0F1 1B0) 0B0 1F1 1B1 0B1
"""


def test_every_action_has_the_text_that_python_gives_it(
    open_report: Open, every_kind: ReportData
) -> None:
    page = open_report(every_kind)
    texts = page.evaluate(
        "[...viewer.model.timelines[0].start.keys()].map(viewer.model.timelines[0].schedule.text)"
    )
    actions = [action for _, action in every_kind.predicted.schedule.actions()]
    assert texts == [str(action) for action in actions]
    move_to(page, "0F0.1")
    words = page.locator("#tip p").inner_text()
    assert words == "0F0.1 forward, stage 0, microbatch 0, slice 1"


def test_zoom_keeps_the_time_under_the_pointer(open_report: Open, two_workers: ReportData) -> None:
    page = open_report(two_workers)
    assert view(page) == (0, 12_000)
    x, y = move_to(page, "1B1")
    page.mouse.wheel(0, -400)
    start, end = view(page)
    assert end - start < 12_000 / 1.5
    assert page.evaluate(PLACE_OF, [0, "1B1"]) == [pytest.approx(x, abs=1), pytest.approx(y, abs=1)]
    page.mouse.wheel(0, 4000)
    assert view(page) == (0, 12_000)


def test_dragging_pans_and_stops_at_the_ends(open_report: Open, two_workers: ReportData) -> None:
    page = open_report(two_workers)
    page.click("#zoom-in")
    page.click("#zoom-in")
    start, end = view(page)
    move_to(page, "1F1")
    page.mouse.down()
    x, y = page.evaluate(PLACE_OF, [0, "1F1"])
    page.mouse.move(x + 200, y, steps=4)
    page.mouse.up()
    moved = view(page)
    assert moved[0] < start
    assert moved[1] - moved[0] == pytest.approx(end - start)
    # What was grabbed is still under the pointer.
    assert page.evaluate(PLACE_OF, [0, "1F1"])[0] == pytest.approx(x + 200, abs=1.5)
    page.mouse.down()
    page.mouse.move(x + 9000, y, steps=4)
    page.mouse.up()
    assert view(page)[0] == 0
    page.click("#fit")
    assert view(page) == (0, 12_000)
    assert page.locator("#zoom-out").is_disabled()


def test_the_overview_moves_the_view(open_report: Open, two_workers: ReportData) -> None:
    page = open_report(two_workers)
    for _ in range(3):
        page.click("#zoom-in")
    box = page.locator("#overview").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 20, box["y"] + 20)
    assert view(page)[1] == 12_000


def test_the_keyboard_does_it_all(open_report: Open, two_workers: ReportData) -> None:
    page = open_report(two_workers)
    page.focus("#scroller")
    page.keyboard.press("+")
    page.keyboard.press("+")
    start, end = view(page)
    assert end - start == pytest.approx(12_000 / 1.6**2)
    page.keyboard.press("ArrowRight")
    assert view(page)[0] == pytest.approx(start + 0.15 * (end - start))
    page.keyboard.press("Home")
    assert view(page)[0] == 0
    page.keyboard.press("End")
    assert view(page)[1] == 12_000
    page.keyboard.press("0")
    assert view(page) == (0, 12_000)
    for text in ("0F0", "0F1", "0B0"):
        page.keyboard.press("n")
        assert page.locator("#details p strong").inner_text() == text
    page.keyboard.press("p")
    assert rows_of(page, "#details")["waited for"] == "0F0, until 1 us"
    page.keyboard.press("Escape")
    assert page.locator("#details p").count() == 0
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_a_click_selects_and_the_path_leads_to_it(
    open_report: Open, two_workers: ReportData
) -> None:
    page = open_report(two_workers)
    page.mouse.click(*move_to(page, "1F1"))
    assert page.locator("#details p strong").inner_text() == "1F1"
    page.click("#path")
    timeline = two_workers.predicted
    expected = path_to(13, waited_for(timeline))
    assert page.evaluate("viewer.scene.path.list") == expected
    assert page.locator("#path").get_attribute("aria-pressed") == "true"
    # 0F0 1 us, its message 1 us, 1F0 1 us, 1B0 2 us, 1F1 1 us: 6 us without a gap.
    assert rows_of(page, "#details") == {
        "forward": "3.000 us (50.0 %)",
        "backward": "2.000 us (33.3 %)",
        "send activations": "1.000 us (16.7 %)",
    }


def test_search_finds_shows_and_counts(open_report: Open, report_of: Any) -> None:
    page = open_report(report_of("zb_h1", 4, 180, 1))
    page.fill("#search", "2w100")
    assert page.locator("#found").inner_text() == "1 of 1"
    assert page.locator("#details p strong").inner_text() == "2W100"
    x, y = page.evaluate(PLACE_OF, [0, "2W100"])
    box = page.locator("#lanes").bounding_box()
    assert box is not None
    assert box["x"] < x < box["x"] + box["width"]
    assert box["y"] < y < box["y"] + box["height"]
    page.fill("#search", "F7")
    assert page.locator("#found").inner_text() == "1 of 4"
    page.keyboard.press("Enter")
    assert page.locator("#details p strong").inner_text() == "1F7"
    page.fill("#search", "nothing")
    assert page.locator("#found").inner_text() == "0 found"


def test_light_and_dark_paper(open_report: Open, two_workers: ReportData) -> None:
    page = open_report(two_workers, color_scheme="light")
    on_lane = move_to(page, "1B0")
    page.mouse.move(5, 5)
    between = (on_lane[0] + 9, on_lane[1] - 14)  # above the lane, beside the line of the axis
    assert colour_at(page, *between) == [255, 255, 255]
    light_ink = colour_at(page, on_lane[0] - 20, on_lane[1])
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(100)
    assert max(colour_at(page, *between)) < 50
    assert light_ink == [0xE6, 0x9F, 0x00]  # the backward's colour
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(14, 17, 22)"


def test_toggles_take_lanes_away(open_report: Open, report_of: Any) -> None:
    page = open_report(report_of("zb_h1", 4, 180, 1))
    both = page.evaluate("viewer.scene.layout.rowHeight")
    page.uncheck("#show-measured")
    page.uncheck("#show-memory")
    page.uncheck("#show-messages")
    layout = page.evaluate(
        "({lanes: viewer.scene.layout.lanes.length, memory: viewer.scene.layout.memory,"
        " height: viewer.scene.layout.rowHeight})"
    )
    assert (layout["lanes"], layout["memory"]) == (1, None)
    assert layout["height"] < both / 2
    page.click("#taller")
    assert page.evaluate("viewer.scene.layout.rowHeight") > layout["height"]


def test_paper_shows_no_controls(open_report: Open, two_workers: ReportData) -> None:
    page = open_report(two_workers, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".toolbar").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


SIZES = {
    "4 workers, 5,000 actions": ("zb_h1", 4, 208, 1),
    "64 workers, 5,000 actions": ("one_f_one_b", 64, 13, 1),
    "4 workers, 100,000 actions": ("zb_h1", 4, 4166, 1),
    "64 workers, 100,000 actions": ("zb_h1", 64, 225, 1),
}


@pytest.mark.parametrize("size", SIZES)
def test_all_workers_are_seen_at_once_and_nothing_sticks_out(
    size: str, open_report: Open, report_of: Any
) -> None:
    data = report_of(*SIZES[size])
    wanted = 5_000 if "5," in size else 100_000
    assert data.predicted.schedule.num_actions == pytest.approx(wanted, rel=0.01)
    page = open_report(data)
    last = data.predicted.schedule.num_workers - 1
    for width in (1600, 800):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function("width => viewer.scene.layout.width <= width", arg=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        seen, total = page.evaluate(
            "[document.getElementById('lanes').clientHeight, viewer.scene.layout.total]"
        )
        assert seen >= total
        # Where the last worker's first forward was drawn, it is found (or its neighbour, where
        # several share a pixel).
        move_to(page, f"{last}F0")
        assert page.locator("#tip p strong").inner_text() in {f"{last}{a}" for a in ("F0", "I0")}


def frame_ms(page: Page) -> float:
    """Shortest time of drawing one frame."""
    times = page.evaluate(
        """() => Array.from({ length: 9 }, () => {
          const start = performance.now();
          viewer.drawNow();
          return performance.now() - start;
        })"""
    )
    return min(times)  # what else runs on the machine only adds


def test_a_zoomed_frame_does_not_depend_on_how_much_lies_outside(
    open_report: Open, report_of: Any
) -> None:
    # One second, about 100 actions of each worker, of a step of 6 s and of one of 120 s.
    frames = []
    for size in ("4 workers, 5,000 actions", "4 workers, 100,000 actions"):
        page = open_report(report_of(*SIZES[size]))
        page.evaluate("viewer.setView(1e9, 2e9)")
        frames.append(frame_ms(page))
    small, large = frames
    # 20 times the actions; a viewer that looks at all of them would take 20 times as long.
    assert large < 4 * max(small, 1.0)


def test_the_whole_step_is_drawn_in_time_linear_in_its_actions(
    open_report: Open, report_of: Any
) -> None:
    small = frame_ms(open_report(report_of(*SIZES["64 workers, 5,000 actions"])))
    large = frame_ms(open_report(report_of(*SIZES["64 workers, 100,000 actions"])))
    assert large < 20 * max(small, 1.0)
