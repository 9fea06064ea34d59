"""Write identical replicas out, which a plan stores once with a count."""

from dataclasses import replace

from evener.ir.schedule import Schedule


def replicate(schedule: Schedule, count: int) -> Schedule:
    """The schedule ``count`` times side by side, each copy with its own microbatches.

    Copy r of worker w is worker r * num_workers + w, and runs microbatches from
    r * num_microbatches on.
    """
    assert count >= 1
    workers = tuple(
        tuple(
            action
            if action.microbatch is None
            else action._replace(microbatch=action.microbatch + copy * schedule.num_microbatches)
            for action in actions
        )
        for copy in range(count)
        for actions in schedule.workers
    )
    return replace(schedule, workers=workers, num_microbatches=schedule.num_microbatches * count)
