"""Schedules of other programs, from the CSV of ``torch.distributed.pipelining``.

torch takes what its regular expression finds at the start of a cell and looks at little else;
here every cell is read to its end, and the whole schedule is proven before anything runs: what is
covered, who sends what to whom in which order, and that it cannot wait for itself.

Grammar: ``_Action.from_str`` in ``torch/distributed/pipelining/schedules.py`` (2.13).  Cells that
are empty or ``None`` are waits in a drawn schedule and mean nothing.  ``(0F1;3B0)OVERLAP_F_B`` is
run in sequence, as torch does.  UNSHARD, RESHARD and REDUCE_GRAD are proven as GATHER, RELEASE and
REDUCE and then left out: what they move is up to the data parallelism of the reader's own program,
and ``ir.passes`` writes ours.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.check import violations
from evener.ir.schedule import COMPUTE_KINDS, MESSAGE_KINDS, Schedule
from evener.ir.text import parse_schedule
from evener.units import too_many_digits

_WORDS = {kind.value: kind for kind in (Kind.F, Kind.B, Kind.I, Kind.W, *MESSAGE_KINDS)}
_STAGE_WORDS = {"UNSHARD": Kind.GATHER, "RESHARD": Kind.RELEASE, "REDUCE_GRAD": Kind.REDUCE}
_KINDS = _WORDS | _STAGE_WORDS
_ACTION = re.compile(rf"(\d+)({'|'.join(sorted(_KINDS, key=len, reverse=True))})(\d*)", re.ASCII)
_OVERLAP = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
_WAITS = ("", "None")
_GRADIENTS = (Kind.B, Kind.W)
_MAX_SHOWN = 40
_WAY_OUT = "name a schedule in torch's CSV or in our own text form"


def read_schedule(path: Path | str, *, keep_messages: bool = False) -> Schedule:
    """Read a schedule from torch's CSV, or from our own text form, and prove it.

    keep_messages: keep SEND and RECV where the file has them; else compute actions only, which is
        what a plan holds.

    Stages belong to the workers that run them.  Raises ScheduleError with all that is wrong.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ScheduleError(f"{path} cannot be read", [f"{error.strerror}; {_WAY_OUT}"]) from None
    except UnicodeDecodeError:
        raise ScheduleError(f"{path} cannot be read", [f"not UTF-8 text; {_WAY_OUT}"]) from None
    if text.lstrip().startswith("#"):
        schedule = parse_schedule(text)
        found = violations(schedule)
    else:
        schedule = _parse_rows(text, path)
        found = [
            *_sizes_with_gaps(schedule),
            *_early_reductions(schedule),
        ] or [_in_torch_words(text) for text in violations(schedule)]
    if found:
        raise _refused(path, found)
    kinds = COMPUTE_KINDS | MESSAGE_KINDS if keep_messages else COMPUTE_KINDS
    return _only(schedule, kinds)


def _parse_rows(text: str, path: Path) -> Schedule:
    wrong: list[str] = []
    rows = [
        tuple(_parse_row(line, cells, wrong))
        for line, cells in enumerate(csv.reader(text.splitlines()), start=1)
    ]
    if not rows:
        wrong.append("there is no row: write one for each rank")
    if wrong:
        raise _refused(path, wrong)
    actions = [action for row in rows for action in row]
    return Schedule(
        name=path.stem,
        num_stages=1 + max(action.stage for action in actions),
        num_microbatches=1 + max(action.microbatch or 0 for action in actions),
        workers=tuple(rows),
    )


def _parse_row(line: int, cells: list[str], wrong: list[str]) -> Iterator[Action]:
    num_actions = 0
    for number, cell in enumerate(map(str.strip, cells), start=1):
        if cell in _WAITS:
            continue
        num_actions += 1
        overlap = _OVERLAP.fullmatch(cell)
        for word in [cell] if overlap is None else overlap[1].split(";"):
            action = _parse_word(word.strip())
            if isinstance(action, str):
                wrong.append(f"line {line}, cell {number}: {action}")
            elif overlap is not None and action.kind not in COMPUTE_KINDS:
                wrong.append(
                    f"line {line}, cell {number}: {word.strip()} is not computed, so nothing can "
                    "overlap with it: give it a cell of its own"
                )
            else:
                yield action
    if not num_actions:
        wrong.append(f"line {line}: no action: every row is a rank with work; remove the line")


def _parse_word(word: str) -> Action | str:
    """One action, or what is wrong with it."""
    if long := too_many_digits(word):
        return long
    found = _ACTION.fullmatch(word)
    if found is None:
        return f"'{word}' is not an action: write <stage><kind><microbatch>, such as 2F0"
    stage, name, microbatch = found.groups()
    if name in _STAGE_WORDS and microbatch:
        return f"'{word}': {name} acts on a whole stage: write {stage}{name}"
    if name not in _STAGE_WORDS and not microbatch:
        return f"'{word}' has no microbatch: write which one, such as {word}0"
    return Action(int(stage), _KINDS[name], int(microbatch) if microbatch else None)


def _sizes_with_gaps(schedule: Schedule) -> Iterator[str]:
    """Indices far from all others; without them the schedule is as small as the file."""
    stages = {action.stage for _, action in schedule.actions()}
    microbatches = {a.microbatch for _, a in schedule.actions() if a.microbatch is not None}
    for what, size, used in (
        ("stage", schedule.num_stages, stages),
        ("microbatch", schedule.num_microbatches, microbatches),
    ):
        if len(used) < size:
            absent = next(index for index in range(size) if index not in used)
            yield f"{what} {absent} does not occur, but {what} {size - 1} does: number from 0 on"


def _early_reductions(schedule: Schedule) -> Iterator[str]:
    """REDUCE_GRAD acts where it stands, however many gradients are there by then."""
    for worker, actions in enumerate(schedule.workers):
        for position, action in enumerate(actions):
            if action.kind is not Kind.REDUCE:
                continue
            late = [
                other
                for other in actions[position:]
                if other.kind in _GRADIENTS and other.stage == action.stage
            ]
            if late:
                yield (
                    f"worker {worker}: {action.stage}REDUCE_GRAD stands before {late[0]}, whose "
                    f"gradient would be left out: move it behind {late[-1]}"
                )


def _in_torch_words(text: str) -> str:
    for word, kind in _STAGE_WORDS.items():
        text = text.replace(kind.value, word)
    return text


def _only(schedule: Schedule, kinds: frozenset[Kind]) -> Schedule:
    rows = (tuple(a for a in actions if a.kind in kinds) for actions in schedule.workers)
    return replace(schedule, workers=tuple(rows))


def _refused(path: Path, found: list[str]) -> ScheduleError:
    shown = found[:_MAX_SHOWN]
    if len(found) > len(shown):
        shown.append(f"... and {len(found) - len(shown)} more")
    return ScheduleError(f"{path} is not a schedule that can run", shown)
