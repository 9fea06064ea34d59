"""Whole timelines as text: no change of the simulator may move one by a nanosecond unseen.

`python tests/sim/test_golden.py` writes the files anew; read the diff before you keep it.
"""

from pathlib import Path

import pytest

from evener.cost.table import KIND_INDEX
from evener.ir.action import Kind
from evener.ir.passes import lower, replicate
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.schedules import SCHEDULES, ScheduleShape
from evener.sim import bubbles, simulate
from evener.testing.worlds import WORLDS

FOLDER = Path(__file__).parents[1] / "golden" / "timelines"


def plain(name: str, *sizes: int) -> Schedule:
    return SCHEDULES[name](ScheduleShape(*sizes))


GOLDEN = {
    "gpipe_2_replicas_slow_link": lower(replicate(plain("gpipe", 2, 2), 2), clip=True),
    "interleaved_tied_slow_link": lower(plain("interleaved_one_f_one_b", 2, 4, 2), tied=[(0, 3)]),
    "one_f_one_b_compute_only_slow_link": plain("one_f_one_b", 3, 5),
    "one_f_one_b_slow_link": lower(plain("one_f_one_b", 3, 5)),
    "zb_h1_unequal": lower(plain("zb_h1", 3, 4)),
}


def text_of(name: str, schedule: Schedule) -> str:
    world = WORLDS["unequal" if name.endswith("unequal") else "slow_link"]
    costs = world(schedule.num_workers, schedule.num_stages)
    for kind, time_ns in {Kind.REDUCE: 9, Kind.NORM: 2, Kind.STEP: 4}.items():
        costs.time_ns[:, :, KIND_INDEX[kind]] = time_ns
    return as_text(simulate(schedule, costs))


def as_text(timeline: Timeline) -> str:
    parts = bubbles(timeline)
    lines = [f"step {timeline.step_ns} ns"]
    held = iter(timeline.memory_bytes)
    for worker in range(timeline.schedule.num_workers):
        idle = (
            f"warm-up {parts.warm_up_ns[worker]}, cool-down {parts.cool_down_ns[worker]}, "
            f"residual {parts.residual_ns[worker]}"
        )
        lines += [
            f"worker {worker}: peak {timeline.peak_bytes[worker]} bytes",
            f"  busy {parts.busy_ns[worker]}, {idle} ns",
            "  action           start      end  holds",
        ]
        lines += [
            f"  {span.action!s:14}{span.start_ns:8} {span.end_ns:8} {next(held):6}"
            for span in timeline.spans(worker)
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", GOLDEN)
def test_timeline_is_the_reviewed_one(name: str) -> None:
    assert text_of(name, GOLDEN[name]) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(GOLDEN)


if __name__ == "__main__":
    for name, schedule in GOLDEN.items():
        (FOLDER / f"{name}.txt").write_text(text_of(name, schedule), encoding="utf-8")
