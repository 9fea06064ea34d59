"""Where the joint search starts: AdaPtis' pieces, and plans that somebody else has found.

Guo et al., AdaPtis (arXiv 2509.23722), section 4: partitions of even stages, stages dealt out in
turn or in waves, and its greedy scheduler, which alternates forwards and backwards.  Beside these
stand rules under which every action is wanted when a pipeline that never waits would run it.
"""

from collections.abc import Iterator

import numpy as np

from evener.planner.joint.balance import balance
from evener.planner.joint.state import State, copy_state, empty_state
from evener.planner.joint.world import FORWARD, WEIGHT, World
from evener.planner.partition.contiguous import Partition, balanced_partition

_NUM_SHIFTS = 3000
"""Of boundaries, to level a start."""

_STAGES_PER_WORKER = (1, 2, 3, 4, 6)


def most_stages(world: World) -> int:
    """Room for half as many stages again as the largest start has."""
    num_workers, _, num_layers, _ = world.sizes.tolist()
    return int(min(num_layers, num_workers * _STAGES_PER_WORKER[-1] * 3 // 2))


def period_ns(world: World) -> int:
    """The work of one microbatch over all workers: what a step costs per microbatch at best."""
    work_ns = world.until_ns[: WEIGHT + 1, :, -1].sum(axis=0).mean()
    return int(work_ns) // int(world.sizes[0]) + 1


def starts(world: World) -> Iterator[State]:
    """All of them, in a fixed order."""
    num_workers, _, num_layers, _ = world.sizes.tolist()
    for chunks in _STAGES_PER_WORKER:
        # One stage more gives the last layers, often a heavy head, to the worker of the first.
        for num_stages in (num_workers * chunks, num_workers * chunks + 1):
            num_stages = min(num_stages, num_layers)
            for wave in (False, True) if chunks > 1 and num_workers > 1 else (False,):
                workers = [_worker(stage, num_workers, wave=wave) for stage in range(num_stages)]
                partition = _even(world, workers)
                for alternate in (False, True):
                    yield state_of(world, partition, workers, alternate=alternate)
            if num_stages == num_layers:
                return


def leveled(world: World, state: State, limit_ns: int) -> State:
    """A start whose workers have more equal work; see ``balance``."""
    level = empty_state(world, most_stages(world))
    copy_state(state, level)
    rooms, seed = np.zeros((4, int(world.sizes[0])), dtype=np.int64), np.zeros(1, dtype=np.uint64)
    balance(world, level, rooms, seed, limit_ns, _NUM_SHIFTS)
    return level


def state_of(
    world: World, partition: Partition, workers: list[int], *, alternate: bool = False
) -> State:
    """A partition and a placement with a rule for all workers.

    alternate: AdaPtis' rule instead of wishes in time: forwards by microbatch, backwards by stage,
    in turns; weight gradients fill.
    """
    state = empty_state(world, most_stages(world))
    count = len(partition)
    state.num_stages[0] = count
    state.cut[: count + 1] = [begin for begin, _ in partition] + [partition[-1][1]]
    state.worker[:count] = workers
    num_microbatches = int(world.sizes[1])
    pace_ns = period_ns(world)
    step_ns = pace_ns * (num_microbatches + len(workers))
    state.shift_ns[WEIGHT] = 4 * step_ns
    if alternate:
        state.pace_ns[FORWARD] = step_ns
        state.turn_ns[:] = 2 * num_microbatches * step_ns
        state.shift_ns[WEIGHT] *= num_microbatches * num_microbatches
    else:
        state.pace_ns[:] = pace_ns
    return state


def _worker(stage: int, num_workers: int, *, wave: bool) -> int:
    lap, place = divmod(stage, num_workers)
    return num_workers - 1 - place if wave and lap % 2 == 1 else place


def _even(world: World, workers: list[int]) -> Partition:
    until_ns = world.until_ns[: WEIGHT + 1].sum(axis=0)
    partition = balanced_partition(np.diff(until_ns[workers], axis=1))
    assert partition is not None, "there are no more stages than layers"
    return partition
