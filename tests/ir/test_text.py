"""Schedules as text: printed, read back, compared; every mistake in a text is named."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.ir.text import diff_schedules, format_schedule, parse_action, parse_schedule

KINDS = (
    "kinds are F B I W R SEND_F RECV_F SEND_B RECV_B GATHER RELEASE REDUCE NORM STEP SHARE "
    "OFFLOAD FREE RELOAD X, and X has a name: 0X:name3"
)
FORM = f"write <stage><KIND><microbatch>[.<slice>][><peer>], such as 0F3 or 2SEND_B1; {KINDS}"

TEXT = """\
# schedule handmade
# stages 2
# microbatches 2
0F0 0F1 0B0 0B1
1F0 1B0 1F1 1B1
"""

numbers = st.integers(0, 10**6)
maybe = st.none() | numbers
plain = st.builds(
    Action,
    numbers,
    st.sampled_from([kind for kind in Kind if kind is not Kind.X]),
    maybe,
    maybe,
    maybe,
    st.none(),
)
side_work = st.builds(
    Action,
    numbers,
    st.just(Kind.X),
    maybe,
    maybe,
    maybe,
    st.from_regex("[A-Za-z_-]+", fullmatch=True),
)
actions = plain | side_work


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("0F3", Action(0, Kind.F, 3)),
        ("2SEND_B1", Action(2, Kind.SEND_B, 1)),
        ("1I4.2", Action(1, Kind.I, 4, 2)),
        ("10RECV_F7>12", Action(10, Kind.RECV_F, 7, peer=12)),
        ("0REDUCE", Action(0, Kind.REDUCE)),
        ("0REDUCE>3", Action(0, Kind.REDUCE, peer=3)),
        ("0REDUCE12", Action(0, Kind.REDUCE, 12)),
        ("0RELOAD1", Action(0, Kind.RELOAD, 1)),
        ("0X:factor2.1", Action(0, Kind.X, 2, 1, name="factor")),
    ],
)
def test_an_action_is_read_and_written(text: str, action: Action) -> None:
    assert parse_action(text) == action
    assert str(action) == text


@given(actions)
def test_every_action_reads_back(action: Action) -> None:
    assert parse_action(str(action)) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F0",
        "0Q1",
        "0F0garbage",
        "0F-1",
        "-1F0",
        "0F1.",
        "0F1>",
        "0F:name1",
        "0X1",
        "0X:1",
        "0f1",
        "٣F1",
    ],
)
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_action(text)
    assert str(caught.value) == f"'{text}' is not an action: {FORM}"


def test_a_schedule_is_read_and_written() -> None:
    schedule = parse_schedule(TEXT)
    assert schedule.workers[1][1] == Action(1, Kind.B, 0)
    assert (schedule.num_slices, schedule.edges) == (1, None)
    assert format_schedule(schedule) == TEXT
    assert parse_schedule(f"\n{TEXT}\n\n") == schedule


@given(
    st.lists(st.lists(actions, max_size=4).map(tuple), max_size=4).map(tuple),
    st.text().map(lambda text: " ".join(text.split())),
    st.none() | st.lists(st.tuples(numbers, numbers)).map(tuple),
    st.integers(1, 5),
)
def test_every_schedule_reads_back(
    workers: tuple[tuple[Action, ...], ...],
    name: str,
    edges: tuple[tuple[int, int], ...] | None,
    num_slices: int,
) -> None:
    schedule = Schedule(name, 4, 7, workers, num_slices=num_slices, edges=edges)
    assert parse_schedule(format_schedule(schedule)) == schedule


def test_the_name_is_written_in_one_line() -> None:
    schedule = replace(parse_schedule(TEXT), name=" two\n# stages 9 ")
    assert format_schedule(schedule).startswith("# schedule two # stages 9\n# stages 2\n")


def test_everything_wrong_is_told_with_its_place() -> None:
    text = """\
# schedule x
# stages none
# stages 0
# color red
# slices 0
# edges 0>1 1-2
0F0  0G0 0B0
1F0 1B
2F0 3?
"""
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(text)
    assert str(caught.value).splitlines() == [
        "this is not the text of a schedule",
        "  line 3: key 'stages' a second time: keep one",
        (
            "  line 4: unknown key 'color': known are schedule, stages, microbatches, slices, "
            "edges, updates"
        ),
        f"  line 7, column 6: '0G0' is not an action: {FORM}",
        f"  line 9, column 5: '3?' is not an action: {FORM}",
        "  no line '# microbatches ...': add one",
        "  '# stages 0': write a whole number of at least 1",
        "  '# slices 0': write a whole number of at least 1",
        "  '# edges': '1-2' is not an edge: write <producer>><consumer>",
    ]


def test_numbers_that_no_machine_counts_to_are_refused() -> None:
    digits = "9" * 5000
    text = f"""\
# schedule x
# stages {digits}
# microbatches 1
# edges 0>{digits} 0>1
# updates {digits} stale 1
0F0 0F{digits} {digits}B0 0F0.{digits} 0SEND_F0>{digits}
"""
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(text)
    wrong = "999999999... is a number of 5000 digits: write at most 18"
    # Columns: 1 + "0F0 ", then 5 + "0F" + 5000 + " ", and so on.
    places = [f"line 6, column {column}" for column in (5, 5008, 10011, 15016)]
    headers = ["'# stages'", "'# edges'", "'# updates'"]
    assert caught.value.violations == tuple(f"{place}: {wrong}" for place in places + headers)


def test_the_difference_of_equal_schedules_is_empty() -> None:
    assert diff_schedules(parse_schedule(TEXT), parse_schedule(TEXT)) == ""


def test_the_difference_names_every_place() -> None:
    other = parse_schedule(
        """\
# schedule split
# stages 2
# microbatches 2
# slices 2
0F0 0F1 0I0 0W0 0B1
1F0 1B0 1F1
0X:spare
"""
    )
    assert diff_schedules(parse_schedule(TEXT), other).splitlines() == [
        "schedule: handmade -> split",
        "slices: default -> 2",
        "worker 0, action 2: -0B0 +0I0 +0W0",
        "worker 1, action 3: -1B1",
        "worker 2, action 0: +0X:spare",
    ]
    assert "worker 2, action 0: -0X:spare" in diff_schedules(other, parse_schedule(TEXT))
