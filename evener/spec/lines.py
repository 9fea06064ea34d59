"""On which line of a TOML text each key stands.

`tomllib` gives values without positions. This reads the same text a second time, only as far as
is needed to follow keys: the text must already have been accepted by `tomllib`.
"""

import re
from bisect import bisect_right

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r"""
      "{3} (?: \\. | [^\\] )*? "{3,5}
    | '{3} .*? '{3,5}
    | " (?: \\. | [^"\\] )* "
    | ' [^']* '
    """,
    re.DOTALL | re.VERBOSE,
)
_SCALAR = re.compile(r"[^,\]}\n#]+")
_UNICODE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, counted from 1, of every key, table and list element, by its path.

    text: valid TOML. A path is made of keys and positions in lists: ``("nodes", 1, "count")``.
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[KeyPath, int] = {}
        self.num_tables: dict[KeyPath, int] = {}

    def read(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self.skip(_BLANK)
        while self.position < len(self.text):
            if self.text[self.position] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.skip(_BLANK)
        return self.lines

    def header(self) -> KeyPath:
        line = self.line()
        is_list = self.text.startswith("[[", self.position)
        self.position += 2 if is_list else 1
        keys = self.dotted_key()
        self.position += 2 if is_list else 1
        path = self.place((), keys[:-1], line)
        path += (keys[-1],)
        if is_list:
            self.lines.setdefault(path, line)
            index = self.num_tables[path] = self.num_tables.get(path, -1) + 1
            path += (index,)
        self.lines[path] = line
        return path

    def pair(self, table: KeyPath) -> None:
        line = self.line()
        keys = self.dotted_key()
        path = (*self.place(table, keys[:-1], line), keys[-1])
        self.lines[path] = line
        self.position += 1  # the equals sign
        self.skip(_SPACE)
        self.value(path)

    def place(self, path: KeyPath, keys: list[str], line: int) -> KeyPath:
        """``path`` extended by ``keys``, each of which stands for the last table of its list."""
        for key in keys:
            path += (key,)
            self.lines.setdefault(path, line)
            if path in self.num_tables:
                path += (self.num_tables[path],)
        return path

    def value(self, path: KeyPath) -> None:
        first = self.text[self.position]
        if first == "[":
            self.elements(path)
        elif first == "{":
            self.inline_table(path)
        else:
            self.skip(_STRING if first in "\"'" else _SCALAR)

    def elements(self, path: KeyPath) -> None:
        self.position += 1
        self.skip(_BLANK)
        index = 0
        while self.text[self.position] != "]":
            self.lines[(*path, index)] = self.line()
            self.value((*path, index))
            index += 1
            self.skip_comma()
        self.position += 1

    def inline_table(self, path: KeyPath) -> None:
        self.position += 1
        self.skip(_BLANK)
        while self.text[self.position] != "}":
            self.pair(path)
            self.skip_comma()
        self.position += 1

    def dotted_key(self) -> list[str]:
        keys = []
        while True:
            self.skip(_SPACE)
            quoted = self.text[self.position] in "\"'"
            key = self.skip(_STRING if quoted else _BARE_KEY)
            keys.append(_unquoted(key) if quoted else key)
            self.skip(_SPACE)
            if self.text[self.position] != ".":
                return keys
            self.position += 1

    def skip_comma(self) -> None:
        self.skip(_BLANK)
        if self.text[self.position] == ",":
            self.position += 1
            self.skip(_BLANK)

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.position)
        assert match is not None, f"not TOML at {self.position}"
        self.position = match.end()
        return match[0]

    def line(self) -> int:
        return bisect_right(self.newlines, self.position - 1) + 1


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else _ESCAPES.get(match[3], match[3])

    return _UNICODE.sub(character, key[1:-1])
