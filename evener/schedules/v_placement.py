"""Which worker holds which stage when the stages run down the workers and back up again."""


def zigzag_workers(num_workers: int, num_stages: int) -> tuple[int, ...]:
    """The worker of each stage: 0, 1, ..., p-1, p-1, ..., 1, 0, 0, 1, ...

    Neighbour stages at a turn are on one worker, so that nothing is sent there.  2p stages make
    the V of the zero-bubble and DualPipeV schedules, 2Wp the W waves of Hanayo.
    """
    there_and_back = (*range(num_workers), *reversed(range(num_workers)))
    return tuple(there_and_back[stage % len(there_and_back)] for stage in range(num_stages))
