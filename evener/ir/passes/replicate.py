"""Write identical replicas out, which a plan stores once with a count."""

from dataclasses import replace

from evener.ir.action import Action
from evener.ir.schedule import CELL_KINDS, Schedule


def replicate(schedule: Schedule, count: int) -> Schedule:
    """The schedule ``count`` times side by side, each copy with its own microbatches.

    Copy r of worker w is worker r * num_workers + w, and runs, of the microbatches of each update,
    those from r times as many as one copy has in it.
    """
    assert count >= 1
    size = schedule.update_size

    def of_copy(action: Action, copy: int) -> Action:
        if action.microbatch is None or action.kind not in CELL_KINDS:
            return action
        others = schedule.update_of(action) * (count - 1) * size
        return action._replace(microbatch=action.microbatch + others + copy * size)

    workers = tuple(
        tuple(of_copy(action, copy) for action in actions)
        for copy in range(count)
        for actions in schedule.workers
    )
    braids = frozenset(of_copy(each, copy) for copy in range(count) for each in schedule.braids)
    num_microbatches = schedule.num_microbatches * count
    return replace(schedule, workers=workers, num_microbatches=num_microbatches, braids=braids)
