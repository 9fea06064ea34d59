"""Draw the pictures of the README and the docs: `python scripts/pictures.py`."""

import runpy
from pathlib import Path

import evener
from evener.report import timeline_svg

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/pictures"


def pictures() -> dict[Path, str]:
    """The plans of examples/unequal_layers.py as timelines, by file."""
    world = runpy.run_path(str(ROOT / "examples/unequal_layers.py"))
    timelines = {}
    for planner in ("uniform", "sweep"):
        result = evener.find_plan(
            world["model"], world["cluster"], world["job"], world["profile"], planner=planner
        )
        timelines[planner] = evener.simulate(result.best, world["profile"], world["cluster"])
    longest_ns = max(timeline.step_ns for timeline in timelines.values())
    return {
        FOLDER / f"unequal_layers_{planner}.svg": timeline_svg(timeline, full_ns=longest_ns)
        for planner, timeline in timelines.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in pictures().items():
        path.write_text(text)
