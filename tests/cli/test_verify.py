"""``evener verify``: what it says when schedules train as one process does, and when not."""

import math

import pytest

from evener.executor.parity_grid import spread
from evener.executor.verify import Case, Parity


@pytest.fixture
def differing(monkeypatch: pytest.MonkeyPatch) -> None:
    parity = Parity("a schedule", loss=0.25, gradient=math.inf, grad_norm=0.0, parameter=1e-3)
    monkeypatch.setattr("evener.executor.verify.verify", lambda plan: parity)


def test_a_difference_is_told_with_exit_code_1(call, here, differing) -> None:
    answer = call("verify plan.json")
    assert answer.code == 1
    assert answer.err == (
        "evener: a schedule: differs from one process: loss 2.50e-01, gradients inf, norm 0.00e+00,"
        " parameters 1.00e-03\n"
    )
    assert answer.out.startswith("0 of 1 cases equal one process within 1e-12")


def test_json_has_no_word_for_infinity(call, here, differing) -> None:
    answer = call("verify plan.json --json")
    assert (answer.code, answer.err) == (1, "")
    assert '"gradient": null' in answer.out


@pytest.mark.dist
def test_all_goes_through_all_cases(call, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case(spread(holders, 2)) for holders in (((0,), (1,)), ((0,), (0,)))]
    monkeypatch.setattr("evener.executor.parity_grid.all_cases", lambda: iter(cases))
    answer = call("verify --all")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("2 of 2 cases equal one process within 1e-12")
