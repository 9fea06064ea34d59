"""Write docs/schedules.md and a picture of every schedule, from what `evener compare` computes.

Usage: python scripts/schedules_page.py
"""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from evener.planner.compare import ComparedSchedule, Comparison, EqualWorld, compare
from evener.report import timeline_svg
from evener.report.comparison import Measures, comparison_cells, comparison_headings
from evener.report.figures import Scale, format_share
from evener.schedules import SCHEDULES, StageTimes

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/schedules.md"
PICTURES = ROOT / "docs/pictures"

# A unit of time is 8 ticks and a microbatch 8 bytes, so that two stages per worker and 4 slices
# come out even.
UNIT = 8
NUM_SLICES = 4
NUM_UPDATES = 3
WORLD = EqualWorld(4, 8, StageTimes(UNIT, UNIT, UNIT), share_bytes=UNIT, num_updates=NUM_UPDATES)
MEASURES = Measures(time=lambda ns: f"{ns / UNIT:g}", memory=lambda held: f"{held / UNIT:g}")

HEAD = """# Schedules

<!-- Written by scripts/schedules_page.py. Do not edit. -->

Every schedule that Evener has, in one world: 4 workers that each hold a quarter of a model, 8
microbatches, F takes 1 on a worker's quarter and B takes 2, half of it for the inputs (I) and half
for the weights (W); messages take no time. A worker's quarter is one stage, or two where the
schedule can use two. A step lasts from the first start to the last end on any worker; the gap is
what it takes longer than {bound}, which no schedule here can beat. Memory counts microbatches of a
worker's quarter, kept from F until the last part of the backward has ended. Schedules of token
slices cut every microbatch into {num_slices} slices that take equally long. Asynchronous schedules
make {num_updates} updates of 8 microbatches each before the pipeline drains; their step is a mean.

[How to read a picture](howto/read-a-report.md), [how to add a
schedule](howto/add-a-schedule.md). For other costs, ask `evener compare`:

```
evener compare --workers 4 --microbatches 8 --forward 1 --backward 2 \\
    --slices {num_slices} --updates {num_updates}
```

"""


def compared() -> Comparison:
    """Every schedule once: with two stages per worker where it can use them, else with one."""
    found = compare(WORLD, num_slices=NUM_SLICES)
    most = {schedule.entry.name: 1 for schedule in found.compared}
    for schedule in found.compared:
        name, chunks = schedule.entry.name, schedule.shape.chunks_per_worker
        most[name] = max(most[name], chunks)
    assert most.keys() == SCHEDULES.keys(), "every schedule runs in this world"
    return replace(
        found,
        compared=tuple(
            schedule
            for schedule in found.compared
            if schedule.shape.chunks_per_worker == most[schedule.entry.name]
        ),
    )


def picture_path(schedule: ComparedSchedule) -> Path:
    """Where the picture of a schedule lies."""
    return PICTURES / f"schedule_{schedule.entry.name}.svg"


def command(schedule: ComparedSchedule) -> str:
    """What prints the schedule."""
    shape = schedule.shape
    text = f"evener simulate --schedule {schedule.entry.name} --stages {shape.num_stages}"
    if shape.chunks_per_worker > 1:
        share = shape.chunks_per_worker
        text += f" --workers {shape.num_workers} --forward {1 / share:g} --backward {2 / share:g}"
    text += f" --microbatches {shape.num_microbatches}"
    text += "" if shape.num_slices == 1 else f" --slices {shape.num_slices}"
    return text if shape.num_updates == 1 else f"{text} --updates {shape.num_updates}"


def table(found: Comparison) -> Iterator[str]:
    """The rows of the table of all schedules."""
    headings = comparison_headings(found, MEASURES)
    yield row(headings) + row(["---", *["---:"] * (len(headings) - 1)])
    for name, *numbers in comparison_cells(found, MEASURES):
        yield row([f"[{name.text}](#{name.text})", *(cell.text for cell in numbers)])


def row(cells: list[str]) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(cells)} |\n"


def section(schedule: ComparedSchedule) -> str:
    """What one schedule is, how it does, its picture and the command that prints it."""
    entry = schedule.entry
    module = inspect.getmodule(entry.generator)
    assert module is not None
    file = module.__name__.replace(".", "/")
    bubble = format_share(schedule.bubbles.bubble_fraction)
    held = MEASURES.memory(schedule.peak_bytes)
    return f"""
## {entry.name}

{first_lines(module)} {first_lines(entry.generator)}

- {entry.cite}
- `{file}.py`
- step {MEASURES.time(schedule.step_ns)}, bubble {bubble}, at most {held} microbatches on a worker

![{entry.name}: who computes what when](pictures/{picture_path(schedule).name})

```
{command(schedule)}
```
"""


def first_lines(documented: object) -> str:
    """The first paragraph of a docstring, in one line."""
    paragraph = (inspect.getdoc(documented) or "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def files() -> dict[Path, str]:
    """The page and the pictures, by file."""
    found = compared()
    head = HEAD.format(
        bound=MEASURES.time(found.lower_bound_ns), num_slices=NUM_SLICES, num_updates=NUM_UPDATES
    )
    page = head + "".join(table(found))
    by_name = {schedule.entry.name: schedule for schedule in found.compared}
    texts = {}
    for name in SCHEDULES:
        schedule = by_name[name]
        page += section(schedule)
        texts[picture_path(schedule)] = timeline_svg(schedule.timeline, unit=Scale("", UNIT, 0))
    return {PAGE: page, **texts}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
