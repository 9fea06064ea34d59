"""Write the end of the step out: REDUCE, NORM, STEP."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.passes.replay import Durations, end_times
from evener.ir.schedule import Schedule

_GRADIENT_KINDS = (Kind.B, Kind.W)


def insert_step(
    schedule: Schedule,
    *,
    tied: Sequence[tuple[int, int]] = (),
    clip: bool = False,
    durations_ns: Durations | None = None,
) -> Schedule:
    """The same schedule with gradient reductions, the norm's exchange and optimizer steps.

    tied: pairs of stages (s, t), s < t, that share parameters: one more ``sREDUCE>t`` on every
        worker that holds s or t, if these are several.
    clip: whether gradients are clipped by their global norm (NORM).
    durations_ns: see ``insert_messages``.

    A stage's REDUCE (only if several workers hold it) stands right after the last gradient of the
    stage on its worker, but all workers list their REDUCEs in one common order: by the time at
    which the last member is ready.  Tied REDUCEs, NORM and STEPs stand at the end.

    Raises ScheduleError if the schedule cannot run to the end, has such actions already, or a pair
    of tied stages is out of range or order.
    """
    _require(schedule, tied)
    ends = end_times(schedule, durations_ns)
    last = _last_gradients(schedule, ends)
    groups = schedule.workers_of_stage
    shared = [stage for stage in range(schedule.num_stages) if len(groups[stage]) > 1]
    ready = {stage: max(last[w, stage][1] for w in groups[stage]) for stage in shared}
    in_order = sorted(shared, key=lambda stage: (ready[stage], stage))
    workers = []
    for worker, actions in enumerate(schedule.workers):
        own = schedule.stages_of_worker[worker]
        reduces = [(last[worker, stage][0], stage) for stage in in_order if stage in own]
        tail = tuple(_tail(schedule, worker, sorted(tied), clip))
        workers.append(_insert_reduces(actions, reduces) + tail)
    return replace(schedule, workers=tuple(workers))


def _require(schedule: Schedule, tied: Sequence[tuple[int, int]]) -> None:
    wrong = [
        f"tied stages {s} and {t}: write the lower one first, both in 0..{schedule.num_stages - 1}"
        for s, t in tied
        if not 0 <= s < t < schedule.num_stages
    ]
    held = {(action.stage, action.kind) for _, action in schedule.actions()}
    for stage in range(schedule.num_stages):
        if held.isdisjoint((stage, kind) for kind in _GRADIENT_KINDS):
            wrong.append(f"stage {stage} has no backward, so there is nothing to step with")
    if any(kind in (Kind.REDUCE, Kind.NORM, Kind.STEP) for _, kind in held):
        wrong.append("REDUCE, NORM or STEP is there already: pass the schedule without them")
    if wrong:
        raise ScheduleError(f"schedule {schedule.name} cannot be given an optimizer step", wrong)


def _last_gradients(schedule: Schedule, ends: list[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """Per (worker, stage), position in the list and end of the last B or W."""
    last = {}
    flat = iter(ends)
    for worker, actions in enumerate(schedule.workers):
        for position, action in enumerate(actions):
            end = next(flat)
            if action.kind in _GRADIENT_KINDS:
                last[worker, action.stage] = (position, end)
    return last


def _insert_reduces(
    actions: tuple[Action, ...], reduces: list[tuple[int, int]]
) -> tuple[Action, ...]:
    """Each (position, stage) after its position, and never before the one in front of it."""
    merged: list[Action] = []
    done = 0
    for position, stage in reduces:
        merged += actions[done : position + 1]
        done = max(done, position + 1)
        merged.append(Action(stage, Kind.REDUCE))
    return (*merged, *actions[done:])


def _tail(
    schedule: Schedule, worker: int, tied: Sequence[tuple[int, int]], clip: bool
) -> Iterator[Action]:
    own = schedule.stages_of_worker[worker]
    for s, t in tied:
        members = {*schedule.workers_of_stage[s], *schedule.workers_of_stage[t]}
        if worker in members and len(members) > 1:
            yield Action(s, Kind.REDUCE, peer=t)
    if clip and own:
        yield Action(own[0], Kind.NORM)
    for stage in own:
        yield Action(stage, Kind.STEP)
