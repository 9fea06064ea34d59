"""Broken files and calls: each ends with exit code 2 and one message, pinned word for word.

The cases are in ``cases/*.txt``::

    == the title
    job.toml: OLD => NEW          replaced once; \\n is a new line, ab*3 is ababab
    plan.json is gone             or: is empty, is binary, is a folder, ends after N bytes
    losses.json holds TEXT
    RANK=0                        in the environment
    $ evener VERB ...
    evener: the answer, as long as it is
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "cases"
_CHANGES = re.compile(
    r"(?P<file>\S+)(?:: (?P<old>.+) =>(?: (?P<new>.*))?| holds ?(?P<text>.*)"
    r"| is (?P<state>gone|empty|binary|a folder)| ends after (?P<size>\d+) bytes)"
)


@dataclass(frozen=True)
class Case:
    """One broken file or call, and all that Evener says to it."""

    title: str
    changes: tuple[str, ...]
    command: str
    answer: str

    @classmethod
    def of(cls, text: str) -> "Case":
        title, *lines = text.rstrip("\n").split("\n")
        place = next(index for index, line in enumerate(lines) if line.startswith("$ evener"))
        answer = "".join(f"{line}\n" for line in lines[place + 1 :])
        return cls(title, tuple(lines[:place]), lines[place].removeprefix("$ evener"), answer)

    def arrange(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """Break what the case breaks; the command."""
        for change in self.changes:
            name, is_variable, value = change.partition("=")
            if is_variable and name.isupper():
                monkeypatch.setenv(name, value)
            else:
                match = _CHANGES.fullmatch(change)
                assert match is not None, change
                break_file(folder / match["file"], match)
        return unfolded(self.command)


def cases(path: Path) -> list[Case]:
    return [Case.of(text) for text in path.read_text("utf-8").removeprefix("== ").split("\n== ")]


def unfolded(text: str) -> str:
    repeated = re.sub(r"(\S+)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    return repeated.replace("\\n", "\n")


def break_file(path: Path, change: re.Match[str]) -> None:
    data = path.read_bytes() if path.exists() else b""
    if change["old"] is not None:
        old, text = unfolded(change["old"]), data.decode()
        assert old in text, f"{path.name} has no {old}"
        path.write_text(text.replace(old, unfolded(change["new"] or ""), 1))
    elif change["text"] is not None:
        path.write_text(unfolded(change["text"]))
    elif change["size"] is not None:
        path.write_bytes(data[: int(change["size"])])
    elif change["state"] == "empty":
        path.write_bytes(b"")
    elif change["state"] == "binary":
        path.write_bytes(bytes(range(256)))
    else:
        path.unlink()
        if change["state"] == "a folder":
            path.mkdir()


CASES = [
    pytest.param(case, id=f"{path.stem}: {case.title}")
    for path in sorted(FOLDER.glob("*.txt"))
    for case in cases(path)
]


@pytest.fixture(autouse=True)
def no_ranks_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evener.executor.devices.has_gpu", lambda: False)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("case", CASES)
def test_ends_with_one_message_that_helps(case, here, call, monkeypatch) -> None:
    answer = call(case.arrange(here, monkeypatch))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == case.answer
