"""What can be said of a schedule without following its order: ranges, coverage, who lists what."""

from collections.abc import Iterable, Iterator

from evener.ir.action import Action, Kind
from evener.ir.dependencies import link_of
from evener.ir.rules import RULES
from evener.ir.schedule import MESSAGE_KINDS, OFFLOAD_KINDS, Cell, Schedule
from evener.ir.versions import wrong_versions

_CELL_KINDS = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R, *OFFLOAD_KINDS)
_BACKWARD = frozenset({Kind.B, Kind.I, Kind.W, Kind.R, Kind.SEND_B, Kind.RECV_B, *OFFLOAD_KINDS})
_MOST_MISSING = 1000
_OF_NO_UPDATE = frozenset({Kind.GATHER, Kind.RELEASE})
_PARAMETERS_USED = frozenset({Kind.F, Kind.B, Kind.I, Kind.W, Kind.R})


def structure_violations(schedule: Schedule, *, forward_only: bool) -> list[str]:
    """All that is wrong with sizes, indices, coverage and membership, as sentences.

    forward_only: every cell is to be run forward only, as in evaluation.
    """
    wrong = [*_wrong_sizes(schedule), *_wrong_indices(schedule)]
    if wrong:
        return wrong
    return [
        *_wrong_braids(schedule),
        *_wrong_cells(schedule, forward_only),
        *_superfluous_messages(schedule),
        *_wrong_groups(schedule),
        *_wrong_steps(schedule),
        *_wrong_gathers(schedule),
        *wrong_versions(schedule, forward_only=forward_only),
    ]


def _wrong_braids(schedule: Schedule) -> Iterator[str]:
    for action in sorted(schedule.braids.difference(a for _, a in schedule.actions()), key=str):
        yield f"{action} begins a braid, but no worker runs it: add it, or drop the braid"


def _wrong_sizes(schedule: Schedule) -> Iterator[str]:
    sizes = {
        "stages": schedule.num_stages,
        "microbatches": schedule.num_microbatches,
        "slices": schedule.num_slices,
        "workers": schedule.num_workers,
        "updates": schedule.updates.number,
    }
    for name, size in sizes.items():
        if size < 1:
            yield f"{size} {name}: there must be at least 1"
    yield from _wrong_updates(schedule)
    if _num_cells(schedule) > schedule.num_actions + _MOST_MISSING:
        yield _mostly_missing(schedule)  # naming each of a billion would take too long
        return
    edges = schedule.stage_edges
    for a, b in edges:
        if not (0 <= a < schedule.num_stages and 0 <= b < schedule.num_stages):
            yield f"edge {a}>{b}: {_range('stages', schedule.num_stages)}"
    for edge in sorted({edge for edge in edges if edges.count(edge) > 1}):
        yield f"edge {edge[0]}>{edge[1]} is there {edges.count(edge)} times: keep one"
    circular = _circular_stages(edges)
    if circular:
        names = ", ".join(map(str, circular))
        yield f"the edges of stages {names} run in a circle: the stage graph must have none"


def _wrong_updates(schedule: Schedule) -> Iterator[str]:
    number, staleness = schedule.updates.number, schedule.updates.staleness
    if number > 0 and schedule.num_microbatches % number:
        yield (
            f"{schedule.num_microbatches} microbatches do not divide into {number} updates: give "
            "each update as many"
        )
    if staleness < 0:
        yield f"weights cannot be stale by {staleness} updates: write 0 or more"
    elif staleness >= number > 0 and staleness > 0:
        yield (
            f"weights cannot be stale by {staleness} updates where there are {number}: write "
            f"{number - 1} at most"
        )


def _num_cells(schedule: Schedule) -> int:
    return schedule.num_stages * schedule.num_microbatches * schedule.num_slices


def _mostly_missing(schedule: Schedule) -> str:
    return (
        f"{schedule.num_stages} stages of {schedule.num_microbatches} microbatches need "
        f"{_num_cells(schedule)} forwards, but there are only {schedule.num_actions} actions: add "
        "what is missing, or write smaller sizes"
    )


def _circular_stages(edges: Iterable[tuple[int, int]]) -> list[int]:
    """Stages that remain when edges from a first stage or to a last one are taken away in turn."""
    rest = set(edges)
    free = rest
    while free:
        feeding, fed = {a for a, _ in rest}, {b for _, b in rest}
        free = {(a, b) for a, b in rest if a not in fed or b not in feeding}
        rest -= free
    return sorted({stage for edge in rest for stage in edge})


def _wrong_indices(schedule: Schedule) -> Iterator[str]:
    for worker, action in schedule.actions():
        for text in _wrong_index(schedule, action):
            yield f"worker {worker}: {action}: {text}"


def _wrong_index(schedule: Schedule, action: Action) -> Iterator[str]:
    stage, kind, _, _, _, name = action
    if not 0 <= stage < schedule.num_stages:
        yield _range("stages", schedule.num_stages)
    if RULES[kind].whole_stage:
        yield from _wrong_update_index(schedule, action)
    else:
        yield from _wrong_cell_index(schedule, action)
    if (name is not None) != (kind is Kind.X):
        yield "X needs a name, and nothing else has one"
    yield from _wrong_peer(schedule, action)


def _wrong_update_index(schedule: Schedule, action: Action) -> Iterator[str]:
    number, update = schedule.updates.number, action.microbatch
    if number == 1 or action.kind in _OF_NO_UPDATE:
        if update is not None or action.slice is not None:
            yield f"{action.kind} acts on a whole stage: write no microbatch"
    elif action.slice is not None:
        yield f"{action.kind} acts on a whole stage: write no slice"
    elif update is None:
        yield f"the schedule makes {number} updates: write which, such as {action}0"
    elif not 0 <= update < number:
        yield _range("updates", number)


def _wrong_cell_index(schedule: Schedule, action: Action) -> Iterator[str]:
    if action.microbatch is None:
        if action.kind is not Kind.X:
            yield f"{action.kind} needs a microbatch"
    elif not 0 <= action.microbatch < schedule.num_microbatches:
        yield _range("microbatches", schedule.num_microbatches)
    if action.slice is None:
        if schedule.num_slices > 1 and action.kind is not Kind.X:
            yield f"microbatches are cut into {schedule.num_slices} slices: write one"
    elif schedule.num_slices == 1:
        yield "microbatches are not cut into slices: write none"
    elif not 0 <= action.slice < schedule.num_slices:
        yield _range("slices", schedule.num_slices)


def _wrong_peer(schedule: Schedule, action: Action) -> Iterator[str]:
    if not 0 <= action.stage < schedule.num_stages:
        return
    if action.kind in MESSAGE_KINDS:
        if link_of(schedule, action) is None:
            downstream = action.kind in (Kind.SEND_F, Kind.RECV_B)
            table = schedule.successors if downstream else schedule.predecessors
            peers = ", ".join(map(str, table[action.stage])) or "none"
            yield f"the other stage must be a neighbour in that direction ({peers})"
    elif action.peer is not None and action.kind is not Kind.REDUCE:
        yield "only messages and REDUCE name another stage"
    elif action.peer is not None and not action.stage < action.peer < schedule.num_stages:
        yield f"write the lower stage first, both in 0..{schedule.num_stages - 1}"


def _wrong_cells(schedule: Schedule, forward_only: bool) -> Iterator[str]:
    listed: dict[Kind, dict[Cell, list[int]]] = {kind: {} for kind in _CELL_KINDS}
    for worker, action in schedule.actions():
        if forward_only and action.kind in _BACKWARD:
            yield f"worker {worker}: {action} has no place in a forward-only schedule: drop it"
        elif action.kind in listed and action.microbatch is not None:
            cell = (action.stage, action.microbatch, action.slice)
            listed[action.kind].setdefault(cell, []).append(worker)
    slices = range(schedule.num_slices) if schedule.num_slices > 1 else (None,)
    for stage in range(schedule.num_stages):
        for microbatch in range(schedule.num_microbatches):
            for token_slice in slices:
                cell = (stage, microbatch, token_slice)
                yield from _wrong_cell(cell, listed, forward_only)
    yield from _wrong_offloads(listed)


def _wrong_cell(
    cell: Cell, listed: dict[Kind, dict[Cell, list[int]]], forward_only: bool
) -> Iterator[str]:
    """One cell: F once, B or both I and W once, the rest at most once."""
    count = {kind: len(workers.get(cell, ())) for kind, workers in listed.items()}
    stage, microbatch, token_slice = cell

    def name(kind: Kind) -> str:
        return str(Action(stage, kind, microbatch, token_slice))

    for kind, number in count.items():
        if number > 1:
            workers = ", ".join(map(str, listed[kind][cell]))
            yield f"{name(kind)} is listed {number} times (workers {workers}): keep one"
    if not count[Kind.F]:
        yield f"{name(Kind.F)} is missing: every stage runs every microbatch once"
    if forward_only:
        return
    if count[Kind.B] and (count[Kind.I] or count[Kind.W]):
        split = " and ".join(name(kind) for kind in (Kind.I, Kind.W) if count[kind])
        yield f"{name(Kind.B)} stands beside {split}: write B alone, or I and W"
    elif not count[Kind.B] and not (count[Kind.I] and count[Kind.W]):
        if count[Kind.I] or count[Kind.W]:
            kind = Kind.W if count[Kind.I] else Kind.I
            yield f"{name(kind)} is missing: I and W make a backward only together"
        else:
            yield f"{name(Kind.B)} is missing: the forward has no backward (B, or I and W)"


def _wrong_offloads(listed: dict[Kind, dict[Cell, list[int]]]) -> Iterator[str]:
    for cell, workers in listed[Kind.OFFLOAD].items():
        action = Action(cell[0], Kind.OFFLOAD, cell[1], cell[2])
        if cell not in listed[Kind.FREE]:
            yield f"worker {workers[0]}: {action} gives no memory back: add a FREE"
        if cell not in listed[Kind.RELOAD]:
            yield f"worker {workers[0]}: {action} never comes back: add a RELOAD"


def _superfluous_messages(schedule: Schedule) -> Iterator[str]:
    """Messages between stages of one worker; nobody waits for them, so nobody else objects."""
    for worker, action in schedule.actions():
        if action.kind not in MESSAGE_KINDS:
            continue
        link = link_of(schedule, action)
        assert link is not None, "indices were checked before"
        _, producer, consumer, microbatch, token_slice = link
        assert microbatch is not None, "indices were checked before"
        runners = {schedule.runner.get((s, microbatch, token_slice)) for s in (producer, consumer)}
        if len(runners) == 1:
            yield (
                f"worker {worker}: {action} is superfluous: one worker runs both stages "
                f"{producer} and {consumer} of the microbatch"
            )


def _wrong_groups(schedule: Schedule) -> Iterator[str]:
    """Every collective is listed by exactly its members, once by each (GATHER: as often by all)."""
    listed: dict[Action, list[int]] = {}
    for worker, action in schedule.actions():
        if action.kind in (Kind.REDUCE, Kind.NORM, Kind.SHARE, Kind.GATHER):
            key = action._replace(stage=0) if action.kind is Kind.NORM else action
            listed.setdefault(key, []).append(worker)
    holders = schedule.workers_of_stage
    for key, workers in listed.items():
        stage, kind, _, _, peer, _ = key
        if kind is Kind.NORM:
            name, members = str(key)[1:], {worker for group in holders for worker in group}
        else:
            name = str(key)
            members = {*holders[stage], *(() if peer is None else holders[peer])}
        for worker in sorted({*members, *workers}):
            number = workers.count(worker)
            if worker not in members:
                yield f"worker {worker}: {name} is listed, but the worker is not a member: drop it"
            elif not number:
                yield f"worker {worker}: {name} is missing: all members list it ({_list(members)})"
            elif number > 1 and kind is not Kind.GATHER:
                yield f"worker {worker}: {name} is listed {number} times: keep one"
        if kind is Kind.GATHER and len({workers.count(worker) for worker in members}) > 1:
            yield f"{name} is listed by some members more often than by others"


def _wrong_steps(schedule: Schedule) -> Iterator[str]:
    """If anything steps, every stage does, per update once on each of its workers, and reduced."""
    steps: dict[tuple[int, Action], int] = {}
    for worker, action in schedule.actions():
        if action.kind is Kind.STEP:
            steps[worker, action] = steps.get((worker, action), 0) + 1
    if not steps:
        return
    number = schedule.updates.number
    updates = range(number) if number > 1 else (None,)
    for worker, own in enumerate(schedule.stages_of_worker):
        for step in (Action(stage, Kind.STEP, update) for stage in own for update in updates):
            count = steps.pop((worker, step), 0)
            if count != 1:
                yield f"worker {worker}: {step} is listed {count} times: once is right"
    for worker, step in steps:
        yield f"worker {worker}: {step} is listed, but the worker does not hold the stage"
    yield from _not_reduced(schedule, updates)


def _not_reduced(schedule: Schedule, updates: Iterable[int | None]) -> Iterator[str]:
    reduced = {
        action  # what names a peer adds up tied parameters alone
        for _, action in schedule.actions()
        if action.kind is Kind.REDUCE and action.peer is None
    }
    if schedule.updates.number > 1 and not reduced and not schedule.is_lowered:
        return  # as a generator writes it: a STEP waits for the gradients of all holders
    for stage, group in enumerate(schedule.workers_of_stage):
        for reduce in (Action(stage, Kind.REDUCE, update) for update in updates):
            if len(group) > 1 and reduce not in reduced:
                yield (
                    f"workers {_list(group)} hold stage {stage}, but its gradients are not added "
                    f"up: add {reduce} on each"
                )


def _wrong_gathers(schedule: Schedule) -> Iterator[str]:
    """Where parameters are gathered at all, they are there whenever they are used."""
    kinds = (Kind.GATHER, Kind.RELEASE)
    for worker, actions in enumerate(schedule.workers):
        sharded = {action.stage for action in actions if action.kind in kinds}
        if not sharded:
            continue
        present: set[int] = set()
        for action in actions:
            if action.stage not in sharded:
                continue
            here = action.stage in present
            if action.kind is Kind.GATHER:
                present.add(action.stage)
            elif action.kind is Kind.RELEASE:
                present.discard(action.stage)
            if action.kind is Kind.GATHER and here:
                yield f"worker {worker}: {action} comes twice without a RELEASE between"
            elif action.kind is Kind.RELEASE and not here:
                yield f"worker {worker}: {action} comes without a GATHER before it"
            elif action.kind in _PARAMETERS_USED and not here:
                yield f"worker {worker}: {action} uses parameters that are not gathered"


def _range(what: str, number: int) -> str:
    return f"{what} are 0 to {number - 1}"


def _list(workers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(workers)))
