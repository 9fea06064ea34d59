"""The greedy list scheduler of AdaPtis (later OctoPipe), for stages of any cost on any worker.

Guo et al., "AdaPtis: Reducing Pipeline Bubbles with Adaptive Pipeline Parallelism on Heterogeneous
Models" (arXiv 2509.23722), and SimPipe, the simulator that the authors publish with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from evener.ir.action import Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import (
    UNIT_TIMES,
    PipelineTimes,
    ScheduleEntry,
    no_closed_form,
    no_slices,
)
from evener.schedules.list_scheduler import KIND_ORDER, ListRun, ListWorld, Priorities
from evener.schedules.refusals import refuse
from evener.schedules.shape import ScheduleShape

ALTERNATE = Priorities(
    order=(Kind.I, Kind.F, Kind.W),
    after_backward=(Kind.F, Kind.I, Kind.W),
    later_stage_first=frozenset({Kind.I}),
)

_NUM_EXEMPTIONS = 4


def adaptis_greedy(
    shape: ScheduleShape,
    times: PipelineTimes | None = None,
    *,
    workers: Sequence[int] | None = None,
) -> Schedule:
    """Alternate F and I on every worker, as far as they are ready, and fill waits with W.

    times: equal ones if left out.  Its caps are kept without deadlock.
    workers: per stage the worker that holds it; stage s on worker s mod p if left out.

    F goes by microbatch, I by the latest stage.  The paper's overlap rule lets an action whose
    message has only just been sent wait for others; the groups of microbatch and kind that then
    cause the largest gaps are exempted one by one, as long as the gaps shrink.  Message times are
    part of the costs here, so the order without the rule is built as well, and the faster one is
    taken.

    Raises ScheduleError for slices, and if a cap has no room for one microbatch of each stage of
    its worker.
    Source: AdaPtis and SimPipe.
    """
    refuse("adaptis_greedy", shape, no_slices)
    if times is None:
        times = PipelineTimes.equal(shape.num_stages, UNIT_TIMES)
    world = ListWorld(
        times,
        num_workers=shape.num_workers,
        num_microbatches=shape.num_microbatches,
        workers=interleaved_workers(shape) if workers is None else workers,
    )
    best = min(_candidates(world), key=lambda run: run.step_ns)
    return best.schedule("adaptis_greedy")


def interleaved_workers(shape: ScheduleShape) -> list[int]:
    """Per stage, its worker if they are dealt out in turn."""
    return [stage % shape.num_workers for stage in range(shape.num_stages)]


def _candidates(world: ListWorld) -> Iterator[ListRun]:
    yield world.run(ALTERNATE)
    rule = replace(ALTERNATE, overlap_messages=True)
    run = world.run(rule)
    gaps_ns = _gaps_ns(run)
    refused = np.zeros(gaps_ns.shape, dtype=bool)
    for _ in range(_NUM_EXEMPTIONS):
        kind, microbatch = np.unravel_index(np.where(refused, 0, gaps_ns).argmax(), gaps_ns.shape)
        refused[kind, microbatch] = True
        exempt = rule.at_once | {(KIND_ORDER[kind], int(microbatch))}
        trial = world.run(replace(rule, at_once=exempt))
        trial_gaps_ns = _gaps_ns(trial)
        if trial_gaps_ns.sum() < gaps_ns.sum():
            run, rule, gaps_ns = trial, replace(rule, at_once=exempt), trial_gaps_ns
    yield run


def _gaps_ns(run: ListRun) -> np.ndarray:
    """int64[kind, microbatch], how long workers idled between two actions, by the second one."""
    order = np.argsort(run.worker, kind="stable")
    gaps_ns = run.taken.start_ns[order][1:] - run.end_ns[order][:-1]
    gaps_ns[np.diff(run.worker[order]) != 0] = 0
    by_group = np.zeros((len(KIND_ORDER), run.world.num_microbatches), dtype=np.int64)
    second = order[1:]
    microbatch = run.arrays.microbatch[run.taken.cell[second]]
    np.add.at(by_group, (run.taken.kind[second], microbatch), gaps_ns)
    return by_group


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    """Without a cap nothing keeps a worker from taking in all microbatches."""
    return (shape.num_microbatches * shape.chunks_per_worker,) * shape.num_workers


ADAPTIS_GREEDY = ScheduleEntry(
    name="adaptis_greedy",
    cite="Guo et al., AdaPtis (OctoPipe), 2025, arXiv 2509.23722; SimPipe",
    generator=adaptis_greedy,
    peak_in_flight=_peak_in_flight,
    makespan_ns=no_closed_form,
    peak_is_exact=False,
    adapted=adaptis_greedy,
)
