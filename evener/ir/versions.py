"""Which version of its weights every action reads, and that none is older than promised.

A stage goes from version v to version v + 1 with its STEP of update v; version 0 is what it has
when the schedule begins.  A worker goes on with all its stages at once, and no gradient of an
update is computed before the STEP of the update before, because they are summed in one place.
"""

from collections.abc import Iterator
from itertools import groupby

from evener.ir.action import Action, Kind
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule

READS_WEIGHTS = frozenset({Kind.F, Kind.B, Kind.I, Kind.W, Kind.R})
_GRADIENTS = frozenset({Kind.B, Kind.W})


def versions_read(schedule: Schedule) -> dict[Action, int]:
    """The version that each F, R, B, I and W reads; weights are at hand as many times as needed.

    The schedule is to be legal.
    """
    updates = schedule.updates
    read: dict[Action, int] = {}
    for worker, _ in enumerate(schedule.workers):
        for action, version in _reads(schedule, worker):
            if updates.stashed:
                version = max(0, schedule.update_of(action) - updates.staleness)
            read[action] = version
    return read


def wrong_versions(schedule: Schedule, *, forward_only: bool) -> Iterator[str]:
    """Weights that are too old, gradients that would mix, STEPs out of order, as sentences."""
    if schedule.updates.number == 1 or forward_only:
        return
    if Kind.STEP not in schedule.kinds:
        yield f"the schedule makes {schedule.updates.number} updates, but lists no STEP: add them"
        return
    for worker, actions in enumerate(schedule.workers):
        yield from _wrong_order(worker, actions)
        yield from _too_old(schedule, worker)
        yield from _repeated_with_others(schedule, worker)


def _reads(schedule: Schedule, worker: int) -> Iterator[tuple[Action, int]]:
    """Each action that reads weights, and how many STEPs of its stage stand before it."""
    done: dict[int, int] = {}
    for action in schedule.workers[worker]:
        if action.kind is Kind.STEP:
            done[action.stage] = done.get(action.stage, 0) + 1
        elif action.kind in READS_WEIGHTS:
            yield action, done.get(action.stage, 0)


def _too_old(schedule: Schedule, worker: int) -> Iterator[str]:
    allowed = schedule.updates.staleness
    for action, version in _reads(schedule, worker):
        update = schedule.update_of(action)
        if action.kind in _GRADIENTS and version < update:
            yield (
                f"worker {worker}: {action} is of update {update} and stands before "
                f"{_step(action, update - 1)}, so the gradients of two updates would mix: move it "
                "behind"
            )
        elif version < update - allowed:
            yield (
                f"worker {worker}: {action} is of update {update} and finds version {version} of "
                f"the weights, {update - version} updates behind; the schedule allows {allowed}: "
                f"move it behind {_step(action, update - allowed - 1)}"
            )


def _repeated_with_others(schedule: Schedule, worker: int) -> Iterator[str]:
    """Forwards whose repetition finds other weights."""
    if schedule.updates.stashed:
        return
    read = dict(_reads(schedule, worker))
    for action, version in read.items():
        first = read.get(action._replace(kind=Kind.F), version)
        if action.kind is Kind.R and first != version:
            yield (
                f"worker {worker}: {action} finds version {version} of the weights, and the "
                f"forward that it repeats had version {first}: move it in front of "
                f"{_step(action, first)}, or leave it out"
            )


def _wrong_order(worker: int, actions: tuple[Action, ...]) -> Iterator[str]:
    """The STEPs of one update stand together, those of the update before in front."""
    compute = (action for action in actions if RULES[action.kind].stream is Stream.COMPUTE)
    before = -1
    for update, group in groupby(
        compute, key=lambda action: action.microbatch if action.kind is Kind.STEP else None
    ):
        if update is None:
            continue
        if update != before + 1:
            yield (
                f"worker {worker}: {next(group)} stands behind the STEPs of update {before}: a "
                "worker steps with all its stages together, update after update"
            )
        before = update


def _step(action: Action, update: int) -> Action:
    return Action(action.stage, Kind.STEP, update)
