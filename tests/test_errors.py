import pickle

import pytest

from evener import errors
from evener.errors import EvenerError, ExecutionError, SpecError, Violation

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, EvenerError)
]


def test_tree_in_the_docstring_names_every_error() -> None:
    assert len(ALL) == 9
    for error in ALL:
        assert f"─ {error.__name__} " in (errors.__doc__ or "")
        assert issubclass(error, ValueError)


@pytest.mark.parametrize("error", [error for error in ALL if error is not SpecError])
def test_message_is_a_header_and_one_line_per_violation(error: type[EvenerError]) -> None:
    raised = error("two things are wrong:", ["first", "second"])
    assert str(raised) == "two things are wrong:\n  first\n  second"
    assert raised.violations == ("first", "second")


def test_message_without_violations_is_the_header() -> None:
    assert str(EvenerError("no plan")) == "no plan"


def test_violation_prints_the_parts_of_its_place_that_are_known() -> None:
    assert str(Violation("bad")) == "bad"
    assert str(Violation("bad", key="a.b")) == "a.b: bad"
    assert str(Violation("bad", line=3)) == "line 3: bad"
    assert str(Violation("bad", file="m.toml", key="a.b")) == "m.toml: a.b: bad"
    assert str(Violation("bad", file="m.toml", line=3, key="a.b")) == "m.toml:3: a.b: bad"


def test_spec_error_keeps_places() -> None:
    place = Violation("bad", file="m.toml", line=3, key="a")
    raised = SpecError("m.toml is not a model:", [place])
    assert raised.places == (place,)
    assert str(raised) == "m.toml is not a model:\n  m.toml:3: a: bad"


@pytest.mark.parametrize(
    "raised",
    [
        SpecError("h", [Violation("bad", "m.toml", 3)]),
        ExecutionError("h", ["a"], rank=3, stage=1, microbatch=2, action="1F2"),
    ],
)
def test_errors_travel_between_processes(raised: EvenerError) -> None:
    arrived = pickle.loads(pickle.dumps(raised))
    assert (type(arrived), str(arrived), vars(arrived)) == (
        type(raised),
        str(raised),
        vars(raised),
    )
