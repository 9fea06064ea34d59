"""The light form of a new plan: everybody keeps its layers, and only the order changes.

Wu et al., "Attack of the Bubbles" (Adaptra, PipeMorph), NSDI 2026, section 4: a slow link is hidden
by more forwards in advance.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from evener.errors import ScheduleError
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.planner.pipeline_times import pipeline_times
from evener.planner.replan.world import World
from evener.schedules import PipelineTimes, ScheduleShape
from evener.schedules.adaptis_greedy import adaptis_greedy
from evener.schedules.adaptra import adaptra
from evener.sim.engine import simulate_many


def with_other_warm_up(plan: Plan, world: World) -> Plan | None:
    """The plan with the fastest order for this world; None if no other one fits.

    Adaptra's order is for one stage per worker; where there are more, and beside it, the greedy
    one of AdaPtis, which warms up as far as the times ask for.  Plans that hold a stage twice, cut
    microbatches or are no chain have no other order here.
    """
    schedule = plan.schedule
    holders = [group[0] for group in schedule.workers_of_stage if len(group) == 1]
    if len(holders) < schedule.num_stages or schedule.num_slices > 1 or schedule.edges is not None:
        return None
    cap_bytes = [world.problem.cap_bytes[world.names.index(name)] for (name,) in plan.devices]
    times = pipeline_times(schedule, world.costs(plan), cap_bytes)
    best, best_ns = None, 0
    for order in _orders(schedule, holders, times):
        found = plan.changed(schedule=order, predicted=None, offload_bytes=None)
        (outcome,) = simulate_many(found.lowered(), [world.costs(found)])
        fits = all(peak <= cap for peak, cap in zip(outcome.peak_bytes, cap_bytes, strict=True))
        if fits and (best is None or outcome.step_ns < best_ns):
            best, best_ns = found, outcome.step_ns
    return best


def _orders(schedule: Schedule, holders: Sequence[int], times: PipelineTimes) -> Iterator[Schedule]:
    """Those that find room for at least one microbatch."""
    shape = ScheduleShape(schedule.num_workers, schedule.num_microbatches)
    with suppress(ScheduleError):
        yield adaptis_greedy(shape, times, workers=holders)
    if sorted(holders) != list(range(schedule.num_workers)):
        return
    # Adaptra counts workers along the chain.
    assert times.cap_bytes is not None, "caps were given"
    along_bytes = tuple(times.cap_bytes[worker] for worker in holders)
    with suppress(ScheduleError):
        along = adaptra(shape, replace(times, cap_bytes=along_bytes))
        workers = tuple(along.workers[holders.index(worker)] for worker in range(len(holders)))
        yield replace(along, workers=workers)
