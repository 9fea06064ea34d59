"""Write out which saved activations spend a while in host memory: OFFLOAD, FREE, RELOAD.

The copies run beside the worker.  OFFLOAD stands right after the cell's forward and FREE ``lead``
compute actions later: so long the copy may take without holding the worker up.  RELOAD stands as
many compute actions before the cell's activations are needed again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import OFFLOAD_KINDS, Cell, Schedule

_USERS = frozenset({Kind.R, Kind.B, Kind.I})


def insert_offload(schedule: Schedule, cells: Collection[Cell], *, lead: int = 1) -> Schedule:
    """The same schedule in which the activations of some cells go to host memory and come back.

    schedule: compute-only. cells: (stage, microbatch, slice) of each.
    lead: compute actions of its worker beside which each copy runs, 1 or more.

    Raises ScheduleError that names every cell that cannot be offloaded, and why.
    """
    assert lead >= 1, "a copy needs something to run beside"
    if not schedule.kinds.isdisjoint(OFFLOAD_KINDS) or schedule.is_lowered:
        raise ScheduleError(_WRONG_INPUT.format(name=schedule.name))
    lives = [lives_of(actions, schedule.braids) for actions in schedule.workers]
    found = {cell: life for own in lives for cell, life in own.items()}
    wrong = [
        f"{Action(cell[0], Kind.OFFLOAD, cell[1], cell[2])}: {reason}"
        for cell in sorted(cells, key=str)
        if (reason := _wrong_cell(found.get(cell), lead))
    ]
    if wrong:
        raise ScheduleError(f"schedule {schedule.name} cannot offload all of these", wrong)
    workers = tuple(
        tuple(
            _merge(
                actions,
                {cell: life for cell, life in own.items() if cell in cells},
                lead,
                schedule.braids,
            )
        )
        for actions, own in zip(schedule.workers, lives, strict=True)
    )
    return replace(schedule, workers=workers)


def compute_places(
    actions: tuple[Action, ...], braids: frozenset[Action]
) -> list[tuple[Action, ...]]:
    """What holds the worker, one after the other: compute actions, two where they are a braid."""
    places: list[tuple[Action, ...]] = []
    is_open = False
    for action in actions:
        if RULES[action.kind].stream is not Stream.COMPUTE:
            continue
        if is_open:
            places[-1] = (*places[-1], action)
        else:
            places.append((action,))
        is_open = action in braids
    return places


def lives_of(actions: tuple[Action, ...], braids: frozenset[Action]) -> dict[Cell, tuple[int, int]]:
    """Of each cell with a backward, where its forward and the first user of what that saved stand.

    Places are those of ``compute_places``. The user is R, B or I.
    """
    begins: dict[Cell, int] = {}
    lives: dict[Cell, tuple[int, int]] = {}
    for place, group in enumerate(compute_places(actions, braids)):
        for action in group:
            if action.microbatch is None:
                continue
            cell = (action.stage, action.microbatch, action.slice)
            if action.kind is Kind.F:
                begins[cell] = place
            elif action.kind in _USERS and cell in begins:
                lives.setdefault(cell, (begins[cell], place))
    return lives


def offloadable(schedule: Schedule, *, lead: int = 1) -> tuple[Cell, ...]:
    """The cells that ``insert_offload`` accepts, those that live longest first."""
    lives = [
        (begin - end, cell)
        for actions in schedule.workers
        for cell, (begin, end) in lives_of(actions, schedule.braids).items()
        if _is_long((begin, end), lead)
    ]
    return tuple(cell for _, cell in sorted(lives, key=lambda pair: pair[0]))


def _is_long(life: tuple[int, int], lead: int) -> bool:
    """Whether at least one compute action runs while a cell's activations are in host memory."""
    begin, end = life
    return end - begin > 2 * lead + 1


def _merge(
    actions: tuple[Action, ...],
    lives: dict[Cell, tuple[int, int]],
    lead: int,
    braids: frozenset[Action],
) -> Iterator[Action]:
    """Behind a compute action, first what begins to leave, then what is gone, then what comes.

    Nothing comes between the two actions of a braid.
    """
    behind: dict[int, list[tuple[int, Action]]] = defaultdict(list)
    for (stage, microbatch, token_slice), (begin, end) in lives.items():
        for order, (kind, place) in enumerate(
            ((Kind.OFFLOAD, begin), (Kind.FREE, begin + lead), (Kind.RELOAD, end - lead - 1))
        ):
            behind[place].append((order, Action(stage, kind, microbatch, token_slice)))
    place, is_open = -1, False
    for action in actions:
        yield action
        if RULES[action.kind].stream is Stream.COMPUTE:
            place += not is_open
            is_open = action in braids
            if not is_open:
                yield from (inserted for _, inserted in sorted(behind[place], key=lambda x: x[0]))


def _wrong_cell(life: tuple[int, int] | None, lead: int) -> str | None:
    if life is None:
        return "no worker runs its forward and a backward; leave it out"
    if not _is_long(life, lead):
        return (
            f"{life[1] - life[0] - 1} compute actions stand between its forward and its backward, "
            f"{2 * lead + 1} are needed; leave it out"
        )
    return None


_WRONG_INPUT = (
    "schedule {name} has messages or offloads already: pass the compute-only schedule without them"
)
