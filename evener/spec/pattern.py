"""The order of layers in one line: ``embedding 12 x (attention mlp) head``.

A pattern is a list of names divided by blanks or commas. ``N x`` before a name or before a list
in round brackets repeats it N times; brackets may be nested.
"""

import re

from evener.units import too_many_digits

_TOKEN = re.compile(r"[\s,]*(?:(\d+)\s*x(?=[\s(]|$)|([A-Za-z0-9_\-]+)|([()]))")
_MOST_LAYERS = 100_000
_DEEPEST = 50


def expand_pattern(pattern: str) -> tuple[str, ...]:
    """The names in ``pattern`` in order, repetitions written out.

    Raises ValueError that names the place when the text is not a pattern, has no names or
    repeats to more than 100,000 of them.
    """
    tokens = _tokens(pattern)
    depth = 0
    for token, at in tokens:
        depth += {"(": 1, ")": -1}.get(str(token), 0)
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} brackets in one another at position {at}")
    names, position = _sequence(tokens, 0)
    if position < len(tokens):
        raise ValueError(f'a ")" without "(" at position {tokens[position][1]}')
    if not names:
        raise ValueError('names no layer; write such as "embedding 12 x (attention mlp) head"')
    return tuple(names)


def _tokens(pattern: str) -> list[tuple[str | int, int]]:
    """Names and brackets as text, repetitions as numbers, each with its position from 1."""
    tokens: list[tuple[str | int, int]] = []
    position = 0
    end = len(pattern.rstrip(" \t\r\n,"))
    while position < end:
        match = _TOKEN.match(pattern, position)
        if match is None:
            rest = pattern[position:].lstrip(" \t\r\n,")
            at = len(pattern) - len(rest) + 1
            raise ValueError(
                f'"{rest[0]}" at position {at} is not part of a pattern; '
                'write such as "embedding 12 x (attention mlp) head"'
            )
        times, name, bracket = match.groups()
        at = match.start(match.lastindex or 0) + 1
        if times and (long := too_many_digits(times)):
            raise ValueError(f"{long} at position {at}")
        tokens.append((int(times) if times else name or bracket, at))
        position = match.end()
    return tokens


def _sequence(tokens: list[tuple[str | int, int]], position: int) -> tuple[list[str], int]:
    """The names from ``position`` to the closing bracket or the end, and where that is."""
    names: list[str] = []
    while position < len(tokens) and tokens[position][0] != ")":
        times = 1
        token, at = tokens[position]
        if isinstance(token, int):
            times = token
            position += 1
            if times == 0 or position == len(tokens) or tokens[position][0] == ")":
                raise ValueError(f'"{token} x" at position {at} repeats nothing')
            token, at = tokens[position]
        if isinstance(token, int):
            raise ValueError(f"two repetitions in a row at position {at}; use brackets")
        if token == "(":
            inner, position = _sequence(tokens, position + 1)
            if position == len(tokens):
                raise ValueError(f'the "(" at position {at} is not closed')
        else:
            inner = [token]
        if len(names) + times * len(inner) > _MOST_LAYERS:
            raise ValueError(f"repeats to more than {_MOST_LAYERS} layers at position {at}")
        names += times * inner
        position += 1
    return names, position
