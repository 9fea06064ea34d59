"""CrossPipe's three placements against table 5 of the paper: 8 stages in two data centres.

Seconds per microbatch of M70.  One forward of a stage takes 0.038 s; the paper gives no other
times, but its 1F1B and ZB-H1 without delays, 0.151 and 0.133 s for 16 microbatches, do: from
(16 + 7)(F+D+W) = 16 x 0.151 and 16(F+D+W) + 7(F+D-W) = 16 x 0.133 follow D = 0.0464, W = 0.0206.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from evener.cost.table import CostTable
from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.memory import peak_in_flight
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.schedules import PipelineTimes, ScheduleEntry, ScheduleShape, one_f_one_b, zb_h1
from evener.schedules.cross_pipe_ud import CROSS_PIPE_UD
from evener.schedules.cross_pipe_udsub import CROSS_PIPE_UDSUB
from evener.schedules.cross_pipe_wave import CROSS_PIPE_WAVE
from evener.sim import simulate
from evener.testing.worlds import unit_costs

NUM_WORKERS = 8
FORWARD_US, INPUT_GRAD_US, WEIGHT_GRAD_US = 38_000, 46_400, 20_600


@dataclass(frozen=True)
class Link:
    """Between workers 3 and 4; times in units of a forward, as the paper's T_lat and T_bw."""

    latency: float
    transfer: float


# T_lat, T_bw of table 5.
LINKS = {
    "none": Link(0, 0),
    "small": Link(0.25, 0.25),
    "narrow": Link(0.25, 2),
    "far": Link(2, 0.25),
    "both": Link(2, 2),
}


def is_far(worker: int) -> bool:
    return worker >= NUM_WORKERS // 2


def seconds_per_microbatch(schedule: Schedule, link: Link) -> float:
    chunks = schedule.num_stages // NUM_WORKERS
    stage_us = {
        Kind.F: FORWARD_US,
        Kind.I: INPUT_GRAD_US,
        Kind.W: WEIGHT_GRAD_US,
        Kind.B: INPUT_GRAD_US + WEIGHT_GRAD_US,
    }
    times = {kind: [us // chunks] * schedule.num_stages for kind, us in stage_us.items()}
    between = np.array(
        [[is_far(a) != is_far(b) for b in range(NUM_WORKERS)] for a in range(NUM_WORKERS)]
    )
    transfer_us = np.full(schedule.num_stages, int(link.transfer * FORWARD_US))
    costs = replace(
        CostTable.of_stages(NUM_WORKERS, times),
        latency_ns=between * int(link.latency * FORWARD_US),
        bytes_per_s=between * 10**9,  # so that a byte takes one unit of time
        forward_bytes=transfer_us,
        backward_bytes=transfer_us,
    )
    step_us = simulate(lower(schedule), costs).step_ns
    return step_us / schedule.num_microbatches / 1e6


def adapted(entry: ScheduleEntry, shape: ScheduleShape, link: Link, memory: int) -> Schedule:
    """memory: in units of the activations that the first worker of 1F1B holds."""
    chunks, stages = shape.chunks_per_worker, shape.num_stages
    regular = entry.generator(shape)
    workers = [group[0] for group in regular.workers_of_stage]
    delay_us = int((link.latency + link.transfer) * FORWARD_US)
    messages = tuple(delay_us * (is_far(a) != is_far(b)) for a, b in pairwise(workers))
    times = PipelineTimes(
        forward_ns=(FORWARD_US // chunks,) * stages,
        input_grad_ns=(INPUT_GRAD_US // chunks,) * stages,
        weight_grad_ns=(WEIGHT_GRAD_US // chunks,) * stages,
        forward_message_ns=messages,
        backward_message_ns=messages,
        activation_bytes=(1,) * stages,
        weight_gradient_bytes=(1,) * stages,
        cap_bytes=(memory * NUM_WORKERS * chunks,) * NUM_WORKERS,
    )
    schedule = entry(shape, times)
    assert max(peak_in_flight(schedule)) <= memory * NUM_WORKERS * chunks
    return schedule


def case_1(entry: ScheduleEntry, chunks: int) -> list[float]:
    """16 microbatches in the memory of 1F1B, link by link."""
    shape = ScheduleShape(NUM_WORKERS, 16, chunks)
    return [seconds_per_microbatch(adapted(entry, shape, link, 1), link) for link in LINKS.values()]


def case_3(entry: ScheduleEntry, chunks: int) -> list[float]:
    """32 microbatches in twice the memory of 1F1B, link by link."""
    shape = ScheduleShape(NUM_WORKERS, 32, chunks)
    return [seconds_per_microbatch(adapted(entry, shape, link, 2), link) for link in LINKS.values()]


def test_the_times_are_those_of_the_static_schedules() -> None:
    shape = ScheduleShape(NUM_WORKERS, 16)
    link = LINKS["none"]
    assert seconds_per_microbatch(one_f_one_b(shape), link) == pytest.approx(0.151, abs=0.0005)
    assert seconds_per_microbatch(zb_h1(shape), link) == pytest.approx(0.133, abs=0.0005)


@pytest.mark.parametrize(
    ("entry", "chunks", "published", "tolerance"),
    [
        (CROSS_PIPE_UDSUB, 2, (0.137, 0.149, 0.181, 0.160, 0.198), 0.03),
        (CROSS_PIPE_UD, 1, (0.137, 0.142, 0.177, 0.153, 0.196), 0.07),
        # The far link alone costs 15% more than published; the other four are within 6%.
        (CROSS_PIPE_WAVE, 2, (0.119, 0.127, 0.250, 0.148, 0.256), 0.15),
    ],
    ids=["UDSub", "UD", "Wave"],
)
def test_case_1_of_table_5(
    entry: ScheduleEntry, chunks: int, published: Sequence[float], tolerance: float
) -> None:
    assert case_1(entry, chunks) == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize(
    ("entry", "chunks", "published"),
    [
        (CROSS_PIPE_UDSUB, 2, (0.121, 0.123, 0.144, 0.127, 0.145)),
        (CROSS_PIPE_UD, 1, (0.118, 0.123, 0.150, 0.124, 0.147)),
        (CROSS_PIPE_WAVE, 2, (0.108, 0.112, 0.235, 0.115, 0.245)),
    ],
    ids=["UDSub", "UD", "Wave"],
)
def test_case_3_of_table_5_is_not_missed(
    entry: ScheduleEntry, chunks: int, published: Sequence[float]
) -> None:
    found = case_3(entry, chunks)
    assert all(ours <= 1.04 * theirs for ours, theirs in zip(found, published, strict=True))


def test_static_orders_suffer_twice_as_much_from_slow_links() -> None:
    # At T_lat = T_bw = 2 1F1B takes 1.9 times as long as without delays, UD 1.4 times.
    shape, link = ScheduleShape(NUM_WORKERS, 16), LINKS["both"]
    static = seconds_per_microbatch(one_f_one_b(shape), link) / 0.151
    adaptive = case_1(CROSS_PIPE_UD, 1)
    assert static > 1.85
    assert adaptive[-1] / adaptive[0] < 1.45


def test_wave_wins_where_links_are_fast_and_loses_where_they_are_narrow() -> None:
    ud, wave = case_1(CROSS_PIPE_UD, 1), case_1(CROSS_PIPE_WAVE, 2)
    none, narrow = list(LINKS).index("none"), list(LINKS).index("narrow")
    assert wave[none] < ud[none]
    assert wave[narrow] > 1.2 * ud[narrow]


@pytest.mark.parametrize(
    ("entry", "chunks", "idle"),
    [(CROSS_PIPE_UD, 1, 3), (CROSS_PIPE_UDSUB, 2, 6), (CROSS_PIPE_WAVE, 2, 3)],
    ids=["UD", "UDSub", "Wave"],
)
def test_with_equal_times_only_the_way_to_the_last_worker_is_idle(
    entry: ScheduleEntry, chunks: int, idle: int
) -> None:
    # 4 workers, 12 microbatches: the first comes to the last worker after 3 blocks.
    schedule = entry(ScheduleShape(4, 12, chunks))
    assert simulate(schedule, unit_costs(4, 4 * chunks)).step_ns == 12 * 3 * chunks + idle


def test_sub_blocks_send_nothing_to_each_other() -> None:
    lowered = lower(CROSS_PIPE_UDSUB(ScheduleShape(2, 3, 2)))
    assert {a.stage for _, a in lowered.actions() if a.kind is Kind.SEND_F} == {1}
    assert lowered.stages_of_worker == ((0, 1), (2, 3))


def test_a_cap_below_one_microbatch_is_refused() -> None:
    shape = ScheduleShape(2, 4, 2)
    times = replace(
        PipelineTimes(*[(1,) * 4] * 3, *[(0,) * 3] * 2, (10,) * 4, (10,) * 4), cap_bytes=(19, 20)
    )
    with pytest.raises(ScheduleError, match="worker 0: one microbatch of each of its stages takes"):
        CROSS_PIPE_WAVE(shape, times)


@pytest.mark.parametrize(
    ("entry", "chunks", "words"),
    [
        (CROSS_PIPE_UD, 2, "ask for 1"),
        (CROSS_PIPE_UDSUB, 1, "ask for 2 or more, or take cross_pipe_ud"),
        (CROSS_PIPE_WAVE, 4, "ask for 2"),
    ],
)
def test_other_chunks_are_refused_with_a_way_out(
    entry: ScheduleEntry, chunks: int, words: str
) -> None:
    with pytest.raises(ScheduleError, match=words):
        entry(ScheduleShape(2, 4, chunks))
