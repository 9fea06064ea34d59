import pytest

from evener.errors import ScheduleError
from evener.schedules import SCHEDULES, ScheduleShape
from evener.testing.conformance import shape_for


@pytest.mark.parametrize("name", SCHEDULES)
def test_names_are_those_of_the_schedules(name: str) -> None:
    entry = SCHEDULES[name]
    assert entry.name == name
    assert entry(shape_for(entry, 4, 8)).name == name


@pytest.mark.parametrize(
    "name", ["gpipe", "one_f_one_b", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "adaptra"]
)
def test_several_chunks_are_refused_with_a_way_out(name: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        SCHEDULES[name](ScheduleShape(2, 2, 3))
    assert str(caught.value) == (
        f"{name} cannot have this shape\n"
        f"  {name} holds one stage per worker, but chunks_per_worker is 3; "
        "ask for 1 or take interleaved_one_f_one_b"
    )
