"""The text form of schedules: prints, parses back, and diffs.

::

    # schedule one_f_one_b
    # stages 2
    # microbatches 2
    0F0 0F1 0B0 0B1
    1F0 1B0 1F1 1B1

One line per worker; a worker that does nothing is ``-``.  The two actions of a braid stand in
brackets: ``(0F3 0B1)``.  ``# slices``, ``# edges 0>1 0>2`` and ``# updates 4 stale 1`` (or ``stale
1 stashed``) are written only where they are not the default.  Blank lines mean nothing.
"""

import re
from dataclasses import astuple
from difflib import SequenceMatcher
from typing import TypeAlias

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule, Updates
from evener.units import too_many_digits

_KINDS = "|".join(sorted(Kind, key=len, reverse=True))
_ACTION = re.compile(
    rf"(?P<stage>\d+)(?P<kind>{_KINDS})(?::(?P<name>[A-Za-z_-]+))?"
    r"(?P<microbatch>\d+)?(?:\.(?P<slice>\d+))?(?:>(?P<peer>\d+))?",
    re.ASCII,
)
_EDGE = re.compile(r"(\d+)>(\d+)", re.ASCII)
_UPDATES = re.compile(r"(\d+) stale (\d+)( stashed)?", re.ASCII)
_IDLE = "-"
_BRAID = "brackets hold the two actions of a braid, such as (0F3 0B1)"
_REQUIRED = ("schedule", "stages", "microbatches")
_KEYS = (*_REQUIRED, "slices", "edges", "updates")


def format_schedule(schedule: Schedule) -> str:
    """The text of a schedule; ``parse_schedule`` gives an equal schedule back."""
    lines = [f"# {key} {value}".rstrip() for key, value in _header(schedule).items()]
    lines += [" ".join(_row(schedule, worker)) or _IDLE for worker in range(schedule.num_workers)]
    return "\n".join(lines) + "\n"


def parse_action(text: str) -> Action:
    """Read one action such as ``2SEND_B1``. Raises ScheduleError."""
    action = _match(text)
    if action is None:
        raise ScheduleError(_not_an_action(text))
    return action


def parse_schedule(text: str) -> Schedule:
    """Read a schedule. Raises ScheduleError with line, column and word of all that is wrong."""
    header: dict[str, str] = {}
    workers: list[tuple[Action, ...]] = []
    braids: set[Action] = set()
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            key, _, value = stripped[1:].strip().partition(" ")
            wrong += _wrong_key(number, key, header)
            header[key] = value.strip()
        elif stripped:
            workers.append(_parse_row(number, line, braids, wrong))
    wrong += [f"no line '# {key} ...': add one" for key in _REQUIRED if key not in header]
    sizes = {
        key: _parse_size(key, header.get(key, "1"), wrong)
        for key in ("stages", "microbatches", "slices")
    }
    edges = _parse_edges(header["edges"], wrong) if "edges" in header else None
    updates = _parse_updates(header.get("updates"), wrong)
    if wrong:
        raise ScheduleError("this is not the text of a schedule", wrong)
    return Schedule(
        header["schedule"],
        sizes["stages"],
        sizes["microbatches"],
        tuple(workers),
        num_slices=sizes["slices"],
        edges=edges,
        braids=frozenset(braids),
        updates=updates,
    )


def diff_schedules(old: Schedule, new: Schedule) -> str:
    """What differs, one line per place; empty if nothing does.

    ``worker 0, action 3: -0B0 +0I0 +0W0`` counts actions of the old schedule from 0.
    """
    lines = []
    before, after = _header(old), _header(new)
    for key in _KEYS:
        if before.get(key) != after.get(key):
            lines.append(f"{key}: {before.get(key, 'default')} -> {after.get(key, 'default')}")
    for worker in range(max(old.num_workers, new.num_workers)):
        a = _row(old, worker)
        b = _row(new, worker)
        # Rows repeat few words, so that the heuristic for junk would only hide real matches.
        for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if tag != "equal":
                words = [f"-{word}" for word in a[a0:a1]] + [f"+{word}" for word in b[b0:b1]]
                lines.append(f"worker {worker}, action {a0}: {' '.join(words)}")
    return "\n".join(lines)


def _header(schedule: Schedule) -> dict[str, str]:
    """The header's keys and values; the name in one line, as only lines are written."""
    header = {
        "schedule": " ".join(schedule.name.split()),
        "stages": str(schedule.num_stages),
        "microbatches": str(schedule.num_microbatches),
    }
    if schedule.num_slices != 1:
        header["slices"] = str(schedule.num_slices)
    if schedule.edges is not None:
        header["edges"] = " ".join(f"{a}>{b}" for a, b in schedule.edges)
    if schedule.updates != Updates():
        number, staleness, stashed = astuple(schedule.updates)
        header["updates"] = f"{number} stale {staleness}{' stashed' if stashed else ''}"
    return header


def _row(schedule: Schedule, worker: int) -> list[str]:
    """One word per action."""
    if worker >= schedule.num_workers:
        return []
    actions = schedule.workers[worker]
    if schedule.braids.isdisjoint(actions):
        return list(map(str, actions))
    opens = [action in schedule.braids for action in actions]
    return [
        f"{'(' if begins else ''}{action}{')' if ends else ''}"
        for action, begins, ends in zip(actions, opens, (False, *opens), strict=False)
    ]


def _match(word: str) -> Action | None:
    found = _ACTION.fullmatch(word)
    if found is None or too_many_digits(word):
        return None
    kind = Kind(found["kind"])
    if (found["name"] is not None) != (kind is Kind.X):
        return None
    microbatch, token_slice, peer = (
        None if found[key] is None else int(found[key]) for key in ("microbatch", "slice", "peer")
    )
    return Action(int(found["stage"]), kind, microbatch, token_slice, peer, found["name"])


def _not_an_action(word: str) -> str:
    return too_many_digits(word) or (
        f"'{word}' is not an action: write <stage><KIND><microbatch>[.<slice>][><peer>], such as "
        f"0F3 or 2SEND_B1; kinds are {' '.join(Kind)}, and X has a name: 0X:name3"
    )


def _wrong_key(number: int, key: str, seen: dict[str, str]) -> list[str]:
    if key not in _KEYS:
        return [f"line {number}: unknown key '{key}': known are {', '.join(_KEYS)}"]
    return [f"line {number}: key '{key}' a second time: keep one"] if key in seen else []


def _parse_row(number: int, line: str, braids: set[Action], wrong: list[str]) -> tuple[Action, ...]:
    if line.strip() == _IDLE:
        return ()
    actions = []
    bracket: _Bracket | None = None
    for found in re.finditer(r"\S+", line):
        place = f"line {number}, column {found.start() + 1}"
        word = found[0]
        opens, closes = word.startswith("("), word.endswith(")")
        action = _match(word[opens : len(word) - closes])
        if not word.strip("()"):
            wrong.append(f"{place}: '{word}' stands alone: brackets touch an action: (0F3 0B1)")
        elif action is None:
            wrong.append(f"{place}: {_not_an_action(word)}")
        else:
            bracket = _next_bracket(f"{place}: '{word}'", opens, closes, bracket, wrong)
            actions.append(action)
            if opens:
                braids.add(action)
    if bracket is not None:
        wrong.append(f"{bracket[0]} is not closed: {_BRAID}")
    return tuple(actions)


_Bracket: TypeAlias = tuple[str, int]
"""Where a bracket that is open was opened, and how many actions it holds by now."""


def _next_bracket(
    place: str, opens: bool, closes: bool, bracket: _Bracket | None, wrong: list[str]
) -> _Bracket | None:
    """The bracket that is open after an action, given the one that was open before it."""
    if opens:
        if bracket is not None:
            wrong.append(f"{bracket[0]} is not closed: {_BRAID}")
        bracket = place, 0
    elif bracket is None:
        if closes:
            wrong.append(f"{place} closes no bracket: {_BRAID}")
        return None
    where, number = bracket[0], bracket[1] + 1
    if not closes:
        return where, number
    if number != 2:
        wrong.append(f"{where} holds {number} action{'s' * (number > 1)}: {_BRAID}")
    return None


def _parse_size(key: str, value: str, wrong: list[str]) -> int:
    if long := too_many_digits(value):
        wrong.append(f"'# {key}': {long}")
        return 1
    if not re.fullmatch(r"\d+", value, re.ASCII) or int(value) == 0:
        wrong.append(f"'# {key} {value}': write a whole number of at least 1")
        return 1
    return int(value)


def _parse_updates(value: str | None, wrong: list[str]) -> Updates:
    if value is None:
        return Updates()
    if long := too_many_digits(value):
        wrong.append(f"'# updates': {long}")
        return Updates()
    found = _UPDATES.fullmatch(value)
    if found is None or int(found[1]) == 0:
        wrong.append(
            f"'# updates {value}': write how many and how stale weights may be, such as "
            "'4 stale 1', or '4 stale 1 stashed'"
        )
        return Updates()
    return Updates(int(found[1]), int(found[2]), found[3] is not None)


def _parse_edges(value: str, wrong: list[str]) -> tuple[tuple[int, int], ...]:
    edges = []
    for word in value.split():
        found = _EDGE.fullmatch(word)
        if long := too_many_digits(word):
            wrong.append(f"'# edges': {long}")
        elif found is None:
            wrong.append(f"'# edges': '{word}' is not an edge: write <producer>><consumer>")
        else:
            edges.append((int(found[1]), int(found[2])))
    return tuple(edges)
