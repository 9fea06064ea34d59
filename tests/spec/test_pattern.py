import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.spec.pattern import expand_pattern

WRITE = 'write such as "embedding 12 x (attention mlp) head"'


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", "a"),
        ("a b, c\n d", "abcd"),
        ("2 x a b", "aab"),
        ("a 2 x (b 2 x c) d", "abccbccd"),
        ("((a) b)", "ab"),
        ("3x(a)", "aaa"),
        ("x 2 x x", "xxx"),
    ],
)
def test_expand(pattern: str, expected: str) -> None:
    assert expand_pattern(pattern) == tuple(expected)


def test_names_may_look_like_repetitions() -> None:
    assert expand_pattern("12xa 2 x 3x-b") == ("12xa", "3x-b", "3x-b")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "names no layer; " + WRITE),
        (" ( ) ", "names no layer; " + WRITE),
        (
            f"a {'9' * 5000} x b",
            "999999999... is a number of 5000 digits: write at most 18 at position 3",
        ),
        ("a (b", 'the "(" at position 3 is not closed'),
        ("a) b", 'a ")" without "(" at position 2'),
        ("a 2 x", '"2 x" at position 3 repeats nothing'),
        ("(2 x ) a", '"2 x" at position 2 repeats nothing'),
        ("0 x a", '"0 x" at position 1 repeats nothing'),
        ("2 x 3 x a", "two repetitions in a row at position 5; use brackets"),
        (
            "a + b",
            '"+" at position 3 is not part of a pattern; ' + WRITE,
        ),
        ("99999 x (a b)", "repeats to more than 100000 layers at position 9"),
    ],
)
def test_refused_pattern(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        expand_pattern(pattern)


NESTED = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.tuples(st.integers(1, 3), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=8,
)


def written(item) -> str:
    if isinstance(item, str):
        return item
    times, inner = item
    return f"{times} x ({' '.join(map(written, inner))})"


def expanded(item) -> list[str]:
    if isinstance(item, str):
        return [item]
    times, inner = item
    return times * [name for each in inner for name in expanded(each)]


@given(NESTED)
def test_any_nesting_is_written_out(item) -> None:
    assert list(expand_pattern(written(item))) == expanded(item)
