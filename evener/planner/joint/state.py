"""One point of the joint search: who runs which layers, and what every worker prefers."""

from typing import NamedTuple

import numpy as np

from evener.compiled import uncounted
from evener.planner.joint.world import Int, World


class State(NamedTuple):
    """All int64; room for the most stages that are tried.

    num_stages: [1]. cut: [stage + 1], where stages begin, and the number of layers.
    worker: [stage]. whole: [stage], 1 if its backward is one action.
    shift_ns: [F I W, stage], when its actions are wanted, relative to a pipeline that never waits.
    pace_ns: [F I W], how much later each next microbatch is wanted.
    turn_ns: [worker], how much later it wants to do the same (forward or backward) as before.
    wait_ns: [F or I / W, worker], how long it waits for a wanted F or I instead of an unwanted one
    or a W.
    """

    num_stages: Int
    cut: Int
    worker: Int
    whole: Int
    shift_ns: Int
    pace_ns: Int
    turn_ns: Int
    wait_ns: Int


def empty_state(world: World, most_stages: int) -> State:
    """Room for a state."""
    num_workers = int(world.sizes[0])
    return State(
        num_stages=np.zeros(1, dtype=np.int64),
        cut=np.zeros(most_stages + 1, dtype=np.int64),
        worker=np.zeros(most_stages, dtype=np.int64),
        whole=np.zeros(most_stages, dtype=np.int64),
        shift_ns=np.zeros((3, most_stages), dtype=np.int64),
        pace_ns=np.zeros(3, dtype=np.int64),
        turn_ns=np.zeros(num_workers, dtype=np.int64),
        wait_ns=np.zeros((2, num_workers), dtype=np.int64),
    )


@uncounted
def copy_state(source: State, target: State) -> None:
    """Overwrite the target."""
    count = source.num_stages[0]
    target.num_stages[0] = count
    for stage in range(count):
        target.cut[stage] = source.cut[stage]
        target.worker[stage] = source.worker[stage]
        target.whole[stage] = source.whole[stage]
        for kind in range(3):
            target.shift_ns[kind, stage] = source.shift_ns[kind, stage]
    target.cut[count] = source.cut[count]
    for kind in range(3):
        target.pace_ns[kind] = source.pace_ns[kind]
    for worker in range(len(source.turn_ns)):
        target.turn_ns[worker] = source.turn_ns[worker]
        for row in range(2):
            target.wait_ns[row, worker] = source.wait_ns[row, worker]
