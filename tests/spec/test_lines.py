import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.spec.lines import key_lines

TEXT = '''\
# a comment with = and [brackets]
name = "x # not a comment"   # a comment
a.b = 1
a."c.d".e = 2

[job]
text = """
two = 1
[lines]
"""
list = [
    1,  # one
    [2, 3], { deep = "}" },
]
inline = { x = 1, y.z = [ { w = 1 } ] }
"quoted \\u00e9" = 'C:\\'
date = 1979-05-27 07:32:00Z

[[nodes]]
name = "a"
[nodes.link]
latency = "5 us"
[[nodes]]
name = "b"
[[nodes.disks]]
size = 1
[[nodes.disks]]
size = 2
'''

EXPECTED = {
    ("name",): 2,
    ("a", "b"): 3,
    ("a", "c.d", "e"): 4,
    ("job",): 6,
    ("job", "text"): 7,
    ("job", "list"): 11,
    ("job", "list", 0): 12,
    ("job", "list", 1): 13,
    ("job", "list", 1, 1): 13,
    ("job", "list", 2, "deep"): 13,
    ("job", "inline", "y", "z", 0, "w"): 15,
    ("job", "quoted é"): 16,
    ("job", "date"): 17,
    ("nodes", 0): 19,
    ("nodes", 0, "name"): 20,
    ("nodes", 0, "link"): 21,
    ("nodes", 0, "link", "latency"): 22,
    ("nodes", 1): 23,
    ("nodes", 1, "name"): 24,
    ("nodes", 1, "disks", 0, "size"): 26,
    ("nodes", 1, "disks", 1): 27,
    ("nodes", 1, "disks", 1, "size"): 28,
}


def paths(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """All paths of keys and list positions in parsed TOML."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        items = []
    return {path}.union(*(paths(child, (*path, key)) for key, child in items))


@pytest.mark.parametrize(("path", "line"), EXPECTED.items())
def test_line_of_a_key(path: tuple[str | int, ...], line: int) -> None:
    assert key_lines(TEXT)[path] == line


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), "", "\n# only a comment"])
def test_paths_are_those_of_the_parsed_text(text: str) -> None:
    assert set(key_lines(text)) | {()} == paths(tomllib.loads(text))


KEY = st.text(st.characters(codec="ascii"), max_size=6)
SCALAR = st.one_of(st.integers(-9, 9), st.booleans(), KEY)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3),
    max_leaves=8,
)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04x}" for character in text) + '"'


def written(value: Any, newline: str) -> str:
    """``value`` as a TOML value, its lists broken over lines by ``newline``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{newline}" + "".join(f"{written(v, newline)},{newline}" for v in value) + "]"
    pairs = (f"{quoted(key)}={written(child, newline)}" for key, child in value.items())
    return "{" + ", ".join(pairs) + "}"


@given(values=st.dictionaries(KEY, VALUE, max_size=4), newline=st.sampled_from(["", "\n", "#]\n"]))
def test_any_text_is_followed(values: dict[str, Any], newline: str) -> None:
    text = "\n".join(f"{quoted(key)} = {written(child, newline)}" for key, child in values.items())
    assert tomllib.loads(text) == values
    lines = key_lines(text)
    assert set(lines) | {()} == paths(values)
    rows = text.split("\n")
    for key in values:
        assert rows[lines[(key,)] - 1].startswith(f"{quoted(key)} = ")
