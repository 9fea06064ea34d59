"""Simulated annealing over states: a compiled loop that runs a part of a cooling at a time."""

from math import log

import numpy as np

from evener.compiled import uncounted
from evener.planner.joint.bench import Bench
from evener.planner.joint.judge import judge
from evener.planner.joint.moves import move
from evener.planner.joint.random_numbers import below, unit
from evener.planner.joint.state import State, copy_state
from evener.planner.joint.world import NEVER, Int, World


@uncounted
def anneal(
    world: World,
    states: tuple[State, State, State],
    bench: Bench,
    seed: np.ndarray,
    found_ns: Int,
    cooling: tuple[float, float, int],
) -> int:
    """Judge changes of one or more random moves; each that is not too bad is kept.

    states: current, best, and room for a trial. found_ns: [2], times of the first two.
    cooling: how much longer (ns, on average) a step may become at the begin and at the end of this
    part, and how much effort it may take (see ``Bench.spent``).

    What a move may cost is drawn before it is judged, so that the judge can give up early.  Returns
    how many were judged.
    """
    current, best, trial = states
    hot_ns, cold_ns, effort = cooling
    begin, num_judged = bench.spent[0], 0
    num_workers = world.sizes[0]
    period_ns = 0
    for worker in range(num_workers):
        for kind in range(3):
            period_ns += world.until_ns[kind, worker, -1]
    period_ns = period_ns // (num_workers * num_workers) + 1
    while bench.spent[0] - begin < effort:
        num_judged += 1
        heat_ns = hot_ns * (cold_ns / hot_ns) ** ((bench.spent[0] - begin) / effort)
        limit_ns = found_ns[0] + int(-log(unit(seed)) * heat_ns)
        copy_state(current, trial)
        again = 1
        while again == 1:
            while not move(world, trial, bench.rooms, seed, period_ns, limit_ns):
                pass
            again = below(seed, 2)
        step_ns = judge(world, trial, bench, limit_ns)
        if step_ns >= NEVER:
            continue
        found_ns[0] = step_ns
        copy_state(trial, current)
        if step_ns < found_ns[1]:
            found_ns[1] = step_ns
            copy_state(trial, best)
    return num_judged
