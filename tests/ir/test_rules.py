"""The table of legal moves, and its picture in the documentation."""

import importlib.util
from pathlib import Path

from evener.ir.action import Kind
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import COMPUTE_KINDS, MESSAGE_KINDS

SCRIPT = Path(__file__).parents[2] / "scripts" / "rules_picture.py"


def test_every_kind_has_a_rule() -> None:
    assert list(RULES) == list(Kind)


def test_the_sets_of_kinds_agree_with_the_streams() -> None:
    of_stream = {
        stream: {kind for kind in Kind if RULES[kind].stream is stream} for stream in Stream
    }
    assert of_stream[Stream.MESSAGE] == MESSAGE_KINDS
    assert of_stream[Stream.COMPUTE] == COMPUTE_KINDS | {Kind.STEP, Kind.FREE}


def test_the_picture_is_the_table() -> None:
    spec = importlib.util.spec_from_file_location("rules_picture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PICTURE.read_text(encoding="utf-8") == module.draw(), (
        "run python scripts/rules_picture.py"
    )
