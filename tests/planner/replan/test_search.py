"""A search in a process of its own."""

import time
from dataclasses import replace
from typing import Any

import pytest

from evener.planner.replan.search import Answer, Search
from evener.planner.result import PlanResult
from evener.spec import JobSpec


def answer_of(search: Search, *, timeout_s: float = 60.0) -> Answer:
    end_s = time.monotonic() + timeout_s
    while search.answer is None:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    search.close()
    return search.answer


@pytest.mark.timeout(90)
def test_a_plan_comes_back(small: Any) -> None:
    problem = small.world().problem
    answer = answer_of(Search(problem, "uniform", time_limit_s=30))
    assert isinstance(answer, PlanResult)
    assert answer.best.devices == (("rank0:0",), ("rank1:0",))
    assert answer.objective_ns == 60_000_000  # as in test_world


@pytest.mark.timeout(90)
def test_what_cannot_be_planned_is_said(small: Any) -> None:
    problem = small.world().problem
    job = JobSpec.model_validate({**dict(problem.job), "memory_cap_bytes": 1})
    answer = answer_of(Search(replace(problem, job=job), "uniform", time_limit_s=30))
    assert isinstance(answer, str)
    assert answer.startswith("uniform 1F1B does not fit")


@pytest.mark.timeout(90)
def test_a_limit_beyond_what_a_system_can_wait_for(small: Any) -> None:
    answer = answer_of(Search(small.world().problem, "uniform", time_limit_s=1e12))
    assert isinstance(answer, PlanResult)


@pytest.mark.timeout(90)
def test_a_search_that_dies_is_an_answer_too(small: Any) -> None:
    search = Search(small.world().problem, "sweep", time_limit_s=30)
    search._process.kill()
    assert answer_of(search) == "its process ended with -9: "
