"""Draw docs/design/rules.svg from the table of legal moves: what each kind of action waits for.

Usage: python scripts/rules_picture.py
"""

from collections.abc import Iterator
from pathlib import Path

from evener.ir.action import Kind
from evener.ir.rules import RULES, Need, Stream, Where, Which

PICTURE = Path(__file__).parent.parent / "docs" / "design" / "rules.svg"

# A mark and a colour for every way in which a need is looked for.
MARKS: dict[tuple[Where, Which], tuple[str, str]] = {
    (Where.SAME, Which.SAME): ("●", "#1f4e79"),
    (Where.SAME, Which.STAGE): ("●", "#1f4e79"),
    (Where.SAME, Which.SLICE_BEFORE): ("◀", "#1f4e79"),
    (Where.SAME, Which.SLICE_AFTER): ("▶", "#1f4e79"),
    (Where.SAME, Which.ALL): ("∀", "#1f4e79"),
    (Where.PREDECESSORS, Which.SAME): ("▲", "#b3541e"),
    (Where.SUCCESSORS, Which.SAME): ("▼", "#b3541e"),
    (Where.EVERY_STAGE, Which.STAGE): ("●", "#5b7f2b"),
    (Where.EVERY_STAGE, Which.ALL): ("∀", "#5b7f2b"),
    (Where.OWNER, Which.STAGE): ("●", "#7a3e9d"),
    (Where.HOLDERS, Which.ALL): ("∀", "#7a3e9d"),
}
LEGEND = (
    ("●", "#1f4e79", "same stage (and microbatch and slice, where it has one)"),
    ("∀", "#1f4e79", "same stage, all microbatches of the worker"),
    ("◀", "#1f4e79", "same stage and microbatch, the slice before"),
    ("▶", "#1f4e79", "same stage and microbatch, the slice after"),
    ("▲", "#b3541e", "every stage that feeds it, same microbatch and slice"),
    ("▼", "#b3541e", "every stage that it feeds, same microbatch and slice"),
    ("∀", "#5b7f2b", "all stages and microbatches of the worker (● green: of all stages)"),
    ("∀", "#7a3e9d", "same stage, all microbatches of all its workers (● violet: of its first)"),
    ("( )", "#555555", "only if the worker's list has such an action; B or I: one of the two"),
)
BANDS = {
    Stream.COMPUTE: "#e8eef5",
    Stream.MESSAGE: "#f8ece2",
    Stream.COLLECTIVE: "#ebf2e0",
    Stream.D2H: "#f2e9f2",
    Stream.H2D: "#f2e9f2",
}
CELL, LEFT, TOP, ROW = 66, 190, 46, 26


def text(
    x: float, y: float, content: str, *, colour: str = "#222222", anchor: str = "middle"
) -> str:
    """One text of the picture."""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{content}</text>'


def rows() -> list[Kind]:
    """All kinds, those of one stream next to one another."""
    return sorted(Kind, key=lambda kind: list(Stream).index(RULES[kind].stream))


def columns() -> list[Kind]:
    """The kinds that anything waits for."""
    needed = {kind for rule in RULES.values() for need in rule.needs for kind in need.kinds}
    return [kind for kind in rows() if kind in needed]


def marks(needs: list[Need], x: float, y: float) -> Iterator[str]:
    """The marks of one cell, side by side."""
    for position, need in enumerate(needs):
        mark, colour = MARKS[need.where, need.which]
        offset = (position - (len(needs) - 1) / 2) * 18
        yield text(x + offset, y, f"({mark})" if need.optional else mark, colour=colour)


def draw() -> str:
    """The whole picture."""
    width = LEFT + CELL * len(columns()) + 10
    height = TOP + ROW * len(RULES) + 20 + ROW * len(LEGEND)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        "<title>What each kind of action waits for</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(10, 16, "this kind of action", anchor="start"),
        text(LEFT, 16, "waits for ...", anchor="start"),
    ]
    for column, kind in enumerate(columns()):
        parts.append(text(LEFT + CELL * (column + 0.5), TOP - 8, kind.value))
    for row, kind in enumerate(rows()):
        rule, y = RULES[kind], TOP + ROW * row
        parts.append(
            f'<rect x="4" y="{y}" width="{width - 8}" height="{ROW - 2}" '
            f'fill="{BANDS[rule.stream]}"/>'
        )
        parts.append(text(12, y + 16, kind.value, anchor="start"))
        parts.append(text(LEFT - 16, y + 16, rule.stream.value, colour="#777777", anchor="end"))
        for column, needed in enumerate(columns()):
            needs = [need for need in rule.needs if needed in need.kinds]
            parts += marks(needs, LEFT + CELL * (column + 0.5), y + 16)
    for row, (mark, colour, meaning) in enumerate(LEGEND):
        y = TOP + ROW * (len(RULES) + row) + 28
        parts.append(text(30, y, mark, colour=colour))
        parts.append(text(56, y, meaning, anchor="start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
