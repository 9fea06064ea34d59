"""Side work: what a user's callables do where the plan has X."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from torch import nn

from evener.errors import UsageError
from evener.executor.bubbles import bubbles_before, is_main
from evener.executor.side_tasks import SideTask
from evener.ir.action import Action, Kind
from evener.ir.plan import Plan
from evener.ir.schedule import side_work_names, without_side_work
from evener.ir.timeline import Timeline


@dataclass(frozen=True)
class SideCall:
    """What a callable knows of the place from which it is called.

    worker, stage, microbatch, slice: of the action; the last two are None where it names none.
    stages: the stages that the worker holds, by index.
    bubble_ns: how long the bubble is expected to last that the action stands in, together with
        other side work there; None if nothing is expected (see ``TrainOptions.expected``).
    """

    worker: int
    stage: int
    microbatch: int | None
    slice: int | None
    stages: Mapping[int, nn.Module]
    bubble_ns: int | None


SideWork: TypeAlias = Mapping[str, Callable[[SideCall], None]]
"""By name: what ``X:<name>`` does."""

SideCalls: TypeAlias = Mapping[Action, Callable[[], None]]
"""By action: what it does on one worker in one step."""


def side_calls(
    plan: Plan,
    worker: int,
    *,
    stages: Mapping[int, nn.Module],
    side_work: SideWork,
    expected: Timeline | None,
) -> tuple[SideCalls, ...]:
    """The side work of one worker, per step of the plan's cycle."""
    bubbles_ns = {} if expected is None else bubbles_before(expected, worker)
    # What stands behind all else may put off the updates as long as that delays nobody.
    tail_ns = (
        sum(ns for before, ns in bubbles_ns.items() if _is_end(before)) if bubbles_ns else None
    )

    def call(action: Action, following: Action | None) -> Callable[[], None]:
        bubble_ns = tail_ns if _is_end(following) else bubbles_ns.get(following)
        place = SideCall(worker, action.stage, action.microbatch, action.slice, stages, bubble_ns)
        return partial(side_work[str(action.name)], place)

    return tuple(
        {
            action: call(action, following)
            for action, following in _with_following(plan.lowered(step).workers[worker])
            if action.kind is Kind.X
        }
        for step in range(len(plan.steps))
    )


def require_side_work(
    plan: Plan,
    *,
    side_work: SideWork,
    side_tasks: Mapping[int, Sequence[SideTask]],
    expected: Timeline | None,
) -> None:
    """Raise UsageError unless exactly the side work of the plan is given.

    side_tasks: of workers that the plan has, and only with ``expected``.
    expected: must be of the plan's schedule, with or without side work.
    """
    wrong = [
        *_wrong_names(plan, side_work),
        *_wrong_tasks(plan, side_tasks, expected),
        *_wrong_expectation(plan, expected),
    ]
    if wrong:
        raise UsageError("plan and side work do not belong together", wrong)


def _wrong_names(plan: Plan, side_work: SideWork) -> Iterator[str]:
    listed = side_work_names(plan.steps)
    missing = sorted(set(listed) - side_work.keys())
    if missing:
        yield _not_given(missing, side_work)
    unknown = sorted(side_work.keys() - set(listed))
    if unknown:
        yield _not_listed(unknown, listed)


def _wrong_tasks(
    plan: Plan, side_tasks: Mapping[int, Sequence[SideTask]], expected: Timeline | None
) -> Iterator[str]:
    strangers = sorted(side_tasks.keys() - set(range(plan.num_workers)))
    if strangers:
        yield _no_such_worker(strangers, plan.num_workers)
    if any(side_tasks.values()) and expected is None:
        yield _NOTHING_EXPECTED


def _wrong_expectation(plan: Plan, expected: Timeline | None) -> Iterator[str]:
    if expected is None:
        return
    given, own = without_side_work(expected.schedule), without_side_work(plan.lowered())
    if given.workers != own.workers:
        yield _other_schedule(given.name, given.num_workers, plan)


def _is_end(action: Action | None) -> bool:
    return action is None or action.kind is Kind.STEP


def _with_following(actions: Sequence[Action]) -> Iterator[tuple[Action, Action | None]]:
    """Every action with the next one that is no side work and runs on the worker itself."""
    following: Action | None = None
    pairs = []
    for action in reversed(actions):
        pairs.append((action, following))
        if is_main(action):
            following = action
    return reversed(pairs)


def _some(names: Sequence[str]) -> str:
    more = len(names) - 4
    return ", ".join(names[:4]) + (f" and {more} more" if more > 0 else "")


def _not_given(missing: Sequence[str], side_work: SideWork) -> str:
    return (
        f"the plan has side work {_some([f'X:{name}' for name in missing])}, but side_work has "
        f"{_some(sorted(side_work)) or 'nothing'}; give a callable for each name in "
        "TrainOptions(side_work=...), or plan without side work"
    )


def _not_listed(unknown: Sequence[str], listed: Sequence[str]) -> str:
    return (
        f"side_work has {_some(unknown)}, but the plan has {_some(listed) or 'no side work'}; "
        "leave it out, or plan with it"
    )


_NOTHING_EXPECTED = (
    "there are side tasks, but nothing says how long bubbles last; give a timeline of the plan in "
    "TrainOptions(expected=...): of `simulate`, or of a run without side tasks"
)


def _no_such_worker(strangers: Sequence[int], num_workers: int) -> str:
    return (
        f"side_tasks are for workers {', '.join(map(str, strangers))}, but the plan has workers 0 "
        f"to {num_workers - 1}; give them to one of these"
    )


def _other_schedule(name: str, num_workers: int, plan: Plan) -> str:
    return (
        f"the expected timeline is of schedule {name} on {num_workers} workers, but the plan runs "
        f"another order of {plan.schedule.name} on {plan.num_workers}; give one of this plan, "
        "simulated or measured"
    )
