"""DualPipeV against torch's own order and the published bubble."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from torch.distributed.pipelining.schedules import ScheduleDualPipeV

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.memory import peak_in_flight
from evener.ir.text import parse_action
from evener.schedules import ScheduleShape
from evener.schedules.dualpipe_v import dualpipe_v
from evener.sim import simulate
from evener.testing.worlds import unit_costs

Row = list[tuple[Action, ...]]
"""What one worker runs, pairs that overlap as one."""


def rows_of_torch(num_workers: int, num_microbatches: int) -> list[Row]:
    planner = ScheduleDualPipeV.__new__(ScheduleDualPipeV)  # without processes and modules
    planner.pp_group_size, planner._n_microbatches = num_workers, num_microbatches
    return [
        [
            tuple(parse_action(str(part)) for part in step.sub_actions or (step,))
            for step in planner._calculate_single_rank_operations(rank)
        ]
        for rank in range(num_workers)
    ]


def step_of_pairs_ns(rows: Sequence[Row]) -> int:
    """Step time where a pair starts when both are ready and gives its results when both end."""
    duration_ns = {Kind.F: 1, Kind.B: 2, Kind.I: 1, Kind.W: 1}
    last_stage = 2 * len(rows) - 1
    end_ns: dict[tuple[str, int, int | None], int] = {}
    free_ns, waiting = [0] * len(rows), [iter(row) for row in rows]
    nexts = [next(row, None) for row in waiting]
    while any(step is not None for step in nexts):
        for worker, step in enumerate(nexts):
            if step is None:
                continue
            needs = [_needed(action, last_stage) for action in step]
            if any(need is not None and need not in end_ns for need in needs):
                continue
            start_ns = max([free_ns[worker], *(end_ns[need] for need in needs if need)])
            free_ns[worker] = start_ns + sum(duration_ns[action.kind] for action in step)
            for stage, kind, microbatch, *_ in step:
                way = {Kind.F: "F", Kind.W: "W"}.get(kind, "B")
                end_ns[way, stage, microbatch] = free_ns[worker]
            nexts[worker] = next(waiting[worker], None)
    return max(free_ns)


def _needed(action: Action, last_stage: int) -> tuple[str, int, int | None] | None:
    if action.kind is Kind.F:
        return ("F", action.stage - 1, action.microbatch) if action.stage else None
    if action.kind is Kind.W:
        return "B", action.stage, action.microbatch
    if action.stage == last_stage:
        return "F", action.stage, action.microbatch
    return "B", action.stage + 1, action.microbatch


SIZES = [(1, 2), (2, 4), (2, 7), (3, 6), (4, 8), (4, 10), (5, 13), (8, 20)]


@pytest.mark.parametrize(("num_workers", "num_microbatches"), SIZES)
def test_order_is_that_of_torch(num_workers: int, num_microbatches: int) -> None:
    schedule = dualpipe_v(ScheduleShape(num_workers, num_microbatches, 2))
    rows = rows_of_torch(num_workers, num_microbatches)
    assert schedule.workers == tuple(tuple(a for step in row for a in step) for row in rows)
    assert schedule.braids == {step[0] for row in rows for step in row if len(step) > 1}


@pytest.mark.parametrize(("num_workers", "num_microbatches"), SIZES)
def test_bubble(num_workers: int, num_microbatches: int) -> None:
    p, m = num_workers, num_microbatches
    # Published, with PP = 2p stages: (PP/2-1)(F&B+B-3W), here F&B = 3, B = 2, W = 1.
    assert step_of_pairs_ns(rows_of_torch(p, m)) == 6 * m + (p - 1) * (3 + 2 - 3)
    schedule = dualpipe_v(ScheduleShape(p, m, 2))
    assert simulate(schedule, unit_costs(p, 2 * p)).step_ns == 6 * m + (p - 1) * (3 + 2 - 3)
    # Two actions that follow each other, a forward being sent on before the backward beside it has
    # ended: (p-1)(F+I-W).
    in_turn = replace(schedule, braids=frozenset())
    assert simulate(in_turn, unit_costs(p, 2 * p)).step_ns == 6 * m + (p - 1) * (1 + 1 - 1)


@pytest.mark.parametrize(("num_workers", "num_microbatches"), SIZES)
def test_memory(num_workers: int, num_microbatches: int) -> None:
    # Published: PP + 1.
    schedule = dualpipe_v(ScheduleShape(num_workers, num_microbatches, 2))
    assert peak_in_flight(schedule) == (2 * num_workers + 1,) * num_workers


def test_other_chunks_are_refused_with_a_way_out() -> None:
    with pytest.raises(ScheduleError, match="but chunks_per_worker is 4; ask for 2"):
        dualpipe_v(ScheduleShape(2, 4, 4))
