import pytest

from evener.errors import ScheduleError
from evener.schedules import ScheduleShape


def test_stages_are_workers_times_chunks() -> None:
    assert ScheduleShape(4, 8).num_stages == 4
    assert ScheduleShape(4, 8, 3).num_stages == 12


def test_units_are_microbatches_times_slices() -> None:
    assert ScheduleShape(4, 8).num_units == 8
    assert ScheduleShape(4, 8, 3, 5).num_units == 40


def test_all_sizes_below_one_are_named_at_once() -> None:
    with pytest.raises(ScheduleError) as caught:
        ScheduleShape(0, -2, 0, 0)
    assert str(caught.value).splitlines() == [
        "no schedule has this shape",
        "  num_workers is 0, but a schedule needs at least 1; ask for 1 or more",
        "  num_microbatches is -2, but a schedule needs at least 1; ask for 1 or more",
        "  chunks_per_worker is 0, but a schedule needs at least 1; ask for 1 or more",
        "  num_slices is 0, but a schedule needs at least 1; ask for 1 or more",
    ]
