"""The page without a browser: complete, self-contained, safe."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evener.ir.timeline import Timeline
from evener.report import Summary, build_report, render_html, write_report

VOID = {"meta", "link", "input", "br"}


class Outline(HTMLParser):
    """Checks nesting; keeps the texts of the page and the attributes that name other files."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.num_scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.num_scripts += tag == "script"
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data.strip())


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    assert parser.open == []
    return parser


@pytest.fixture
def page(predicted: Timeline, measured: Timeline) -> str:
    summary = Summary("Two workers", model="tiny", cap_bytes=(4, 4), tokens_per_step=22)
    return render_html(
        build_report(predicted, measured=measured, summary=summary, losses=[3.0, 2.0])
    )


def test_the_page_names_no_other_file_and_forbids_the_network(page: str) -> None:
    assert outline(page).links == ["data:,"]  # a browser would ask for an icon otherwise
    assert re.findall(r"https?://|@import|url\(", page) == []
    assert "default-src 'none'" in page


def test_all_slots_are_filled_and_ids_are_unique(page: str) -> None:
    assert "{{" not in page
    ids = outline(page).ids
    assert len(ids) == len(set(ids))


def test_numbers_stand_in_the_page_without_script(page: str) -> None:
    texts = outline(page).texts
    for text in ("Two workers", "22.00 us", "predicted 11.00 us", "+100.00 %", "45.5 %", "6.00"):
        assert text in texts


def test_what_is_unknown_leaves_no_empty_section(predicted: Timeline) -> None:
    alone = outline(render_html(build_report(predicted, summary=Summary("alone"))))
    assert "Training loss" not in alone.texts
    assert "memory cap" not in alone.texts
    assert "show-measured" not in alone.ids


def test_texts_cannot_break_out_of_their_place(predicted: Timeline) -> None:
    evil = '<!--<script></script><script>alert(1)</script>"&<b>{{block}}'
    summary = Summary(
        evil,
        model=evil,
        status=evil,
        worker_names=(evil, evil),
        stage_names=(evil, evil),
        facts=((evil, evil),),
    )
    page = outline(render_html(build_report(predicted, summary=summary)))
    # <title>, heading, status, model, and the name and the value of a fact.
    assert page.texts.count(evil) == 6
    assert page.num_scripts == 3


@pytest.mark.parametrize(
    ("cap_bytes", "top"),
    # Peaks are 3 and 2 bytes. A cap of more than twice that would flatten the curves.
    [((4, 4), 4), ((4, 100), 4), ((100, 100), 3)],
)
def test_the_memory_scale_holds_peaks_and_near_caps(
    predicted: Timeline, cap_bytes: tuple[int, int], top: int
) -> None:
    page = render_html(build_report(predicted, summary=Summary("caps", cap_bytes=cap_bytes)))
    assert f'"memory":{{"top":{top},"caps":[{cap_bytes[0]},{cap_bytes[1]}]}}' in page


def test_the_file_is_written_with_its_folder(predicted: Timeline, tmp_path: Path) -> None:
    data = build_report(predicted, summary=Summary("alone"))
    path = write_report(tmp_path / "new" / "report.html", data)
    assert path.read_text(encoding="utf-8") == render_html(data)
