"""Write identical replicas out, which a plan stores once with a count."""

from dataclasses import replace

from evener.ir.action import Action
from evener.ir.schedule import Schedule


def replicate(schedule: Schedule, count: int) -> Schedule:
    """The schedule ``count`` times side by side, each copy with its own microbatches.

    Copy r of worker w is worker r * num_workers + w, and runs microbatches from
    r * num_microbatches on.
    """
    assert count >= 1
    m = schedule.num_microbatches
    workers = tuple(
        tuple(_moved(action, copy * m) for action in actions)
        for copy in range(count)
        for actions in schedule.workers
    )
    braids = frozenset(_moved(a, copy * m) for copy in range(count) for a in schedule.braids)
    return replace(schedule, workers=workers, num_microbatches=m * count, braids=braids)


def _moved(action: Action, num_microbatches: int) -> Action:
    if action.microbatch is None:
        return action
    return action._replace(microbatch=action.microbatch + num_microbatches)
