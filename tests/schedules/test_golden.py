"""Small schedules as text, so that a person can review an order and every change of it.

`python tests/schedules/test_golden.py` writes the files anew; read the diff before you keep it.
"""

from pathlib import Path

import pytest

from evener.ir.text import format_schedule
from evener.schedules import SCHEDULES, ScheduleShape

FOLDER = Path(__file__).parents[1] / "golden" / "schedules"

GOLDEN = [
    ("gpipe", ScheduleShape(3, 4)),
    ("one_f_one_b", ScheduleShape(4, 8)),
    ("interleaved_one_f_one_b", ScheduleShape(2, 4, 2)),
    ("interleaved_one_f_one_b", ScheduleShape(3, 4, 2)),
    ("zb_h1", ScheduleShape(4, 8)),
    ("zb_h1", ScheduleShape(4, 2)),
    ("zb_h2", ScheduleShape(3, 8)),
    ("zb_1p", ScheduleShape(3, 6)),
    ("zb_2p", ScheduleShape(3, 6)),
    ("zb_v", ScheduleShape(3, 6, 2)),
    ("v_half", ScheduleShape(4, 6, 2)),
    ("v_min", ScheduleShape(4, 6, 2)),
    ("adaptra", ScheduleShape(3, 6)),
    ("adaptis_greedy", ScheduleShape(2, 3, 2)),
    ("chimera", ScheduleShape(4, 6)),
    ("bitpipe", ScheduleShape(4, 4, 2)),
    ("hanayo", ScheduleShape(3, 4, 2)),
    ("mini_stage_gpipe", ScheduleShape(2, 3, 2)),
    ("dualpipe_v", ScheduleShape(3, 7, 2)),
    ("stp", ScheduleShape(3, 8, 2)),
    ("cross_pipe_ud", ScheduleShape(3, 7)),
    ("cross_pipe_udsub", ScheduleShape(2, 4, 2)),
    ("cross_pipe_wave", ScheduleShape(3, 6, 2)),
    ("seq1f1b", ScheduleShape(3, 2, num_slices=2)),
    ("seq1f1b_interleaved", ScheduleShape(2, 3, 2, 3)),
    ("seq1f1b_zb", ScheduleShape(3, 3, num_slices=2)),
    ("terapipe", ScheduleShape(3, 2, num_slices=2)),
    ("slimpipe", ScheduleShape(2, 3, num_slices=3)),
    ("sppo", ScheduleShape(3, 2, num_slices=3)),
    ("amdp_2", ScheduleShape(4, 4, num_updates=3)),
    ("amdp_4", ScheduleShape(8, 8, num_updates=2)),
    ("pipedream_2bw", ScheduleShape(3, 4, num_updates=3)),
]


def path_of(name: str, shape: ScheduleShape) -> Path:
    sizes = f"{shape.num_workers}x{shape.chunks_per_worker}_{shape.num_microbatches}"
    slices = "" if shape.num_slices == 1 else f"_{shape.num_slices}"
    updates = "" if shape.num_updates == 1 else f"_{shape.num_updates}_updates"
    return FOLDER / f"{name}_{sizes}{slices}{updates}.txt"


@pytest.mark.parametrize(("name", "shape"), GOLDEN)
def test_order_is_the_reviewed_one(name: str, shape: ScheduleShape) -> None:
    text = path_of(name, shape).read_text(encoding="utf-8")
    assert format_schedule(SCHEDULES[name](shape)) == text


def test_no_file_is_left_over() -> None:
    assert set(FOLDER.iterdir()) == {path_of(name, shape) for name, shape in GOLDEN}


if __name__ == "__main__":
    for name, shape in GOLDEN:
        path_of(name, shape).write_text(format_schedule(SCHEDULES[name](shape)), encoding="utf-8")
