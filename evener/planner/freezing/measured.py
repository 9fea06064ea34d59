"""Costs of single actions from measured timelines, for the linear program."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median_low

import numpy as np

from evener.cost.table import CostTable
from evener.interp.program import compile_program
from evener.ir.action import Action, Kind
from evener.ir.freezing import FREEZABLE_KINDS
from evener.ir.rules import RULES, Stream
from evener.ir.timeline import Timeline


def measured_least_ns(timelines: Sequence[Timeline]) -> dict[Action, int]:
    """The time of every freezable action, its median over timelines with everything frozen."""
    medians_ns = _medians_ns(timelines)
    return {
        action: medians_ns[index]
        for index, (_, action) in enumerate(timelines[0].schedule.actions())
        if action.kind in FREEZABLE_KINDS
    }


def measured_single_costs(timelines: Sequence[Timeline]) -> CostTable:
    """What every action takes by itself: its median over timelines of one lowered schedule.

    What a message or a collective took in a timeline includes waiting for the others.  So of a
    collective the shortest of its members counts, and of messages the shortest between the two
    workers, as latency.
    """
    schedule = timelines[0].schedule
    program = compile_program(schedule)
    medians_ns = _medians_ns(timelines)
    for first, last in pairwise(program.members_ptr.tolist()):
        members = program.members_idx[first:last].tolist()
        shortest_ns = min(medians_ns[index] for index in members)
        for index in members:
            medians_ns[index] = shortest_ns
    single_ns: dict[Action, int] = {}
    latency_ns: dict[tuple[int, int], int] = {}
    for index, action in enumerate(program.actions):
        if RULES[action.kind].stream is not Stream.MESSAGE:
            single_ns[action] = medians_ns[index]
        elif action.kind in (Kind.SEND_F, Kind.SEND_B):
            pair = int(program.worker[index]), int(program.peer_worker[index])
            latency_ns[pair] = min(latency_ns.get(pair, medians_ns[index]), medians_ns[index])
    nothing = CostTable.uniform(
        schedule.num_workers, schedule.num_stages, forward_ns=0, input_ns=0, weight_ns=0
    )
    table_ns = np.zeros_like(nothing.latency_ns)
    for pair, shortest_ns in latency_ns.items():
        table_ns[pair] = shortest_ns
    return replace(nothing, latency_ns=table_ns, single_ns=single_ns)


def _medians_ns(timelines: Sequence[Timeline]) -> list[int]:
    """Median duration of each action of the first timeline, in flat order.

    The others may have other side work.
    """
    durations_ns: dict[tuple[int, Action], list[int]] = {}
    for timeline in timelines:
        for index, who_does_what in enumerate(timeline.schedule.actions()):
            duration_ns = timeline.end_ns[index] - timeline.start_ns[index]
            durations_ns.setdefault(who_does_what, []).append(duration_ns)
    actions = timelines[0].schedule.actions()
    return [median_low(durations_ns[who_does_what]) for who_does_what in actions]
