"""Side work of a job in the plan and in the comparison, on problems worked out by hand."""

import pytest

from evener.api import simulate
from evener.errors import PlanInfeasible
from evener.planner.compare import EqualWorld, compare
from evener.planner.find_plan import find_plan
from evener.report.comparison import Measures, comparison_text
from evener.schedules import SCHEDULES, StageTimes
from evener.spec.job import FreezeSpec
from evener.spec.side_work import SideWorkSpec

WORK = (
    SideWorkSpec(name="factor", time_ns=100, after="forward"),
    SideWorkSpec(name="inverse", time_ns=300, after="factor"),
)


def found(problem):
    return find_plan(
        problem.model, problem.cluster, problem.job, problem.profile, planner="uniform"
    )


def test_a_plan_does_the_side_work_of_its_job(make_problem):
    # 1F1B, 2 workers, 2 microbatches, F = 200, B = 400: step 3 x 600 = 1800. Worker 0 waits
    # 400-800 and 1200-1400, worker 1 0-200 and 1400-1800. With 5 % of slack a factor has 105, the
    # inverse 315. Worker 0: both factors until 610, the inverse in the next step. Worker 1: both
    # factors from 1400 to 1610, where 190 are left; the inverse in the next step as well.
    problem = make_problem([200, 200], num_workers=2, num_sequences=2, side_work=WORK)
    plan = found(problem).best
    assert [[" ".join(map(str, row)) for row in step.workers] for step in plan.cycle] == [
        [
            "0F0 0F1 0X:factor0 0X:factor1 0B0 0B1",
            "1F0 1B0 1F1 1B1 1X:factor0 1X:factor1",
        ],
        ["0F0 0F1 0X:inverse 0B0 0B1", "1F0 1B0 1F1 1B1 1X:inverse"],
    ]
    timeline = simulate(plan, problem.profile, problem.cluster)
    assert timeline.step_ns == plan.predicted.step_ns == 1800
    spans = {str(span.action): (span.start_ns, span.end_ns) for span in timeline.spans(0)}
    assert spans["0X:factor1"] == (500, 600)


def test_side_work_goes_into_the_bubbles_that_freezing_leaves(make_problem):
    problem = make_problem(
        [200, 200], num_workers=2, num_sequences=4, side_work=WORK[:1], freeze=FreezeSpec()
    )
    plan = found(problem).best
    assert "X:factor" in " ".join(map(str, plan.lowered(0).workers[0]))
    assert simulate(plan, problem.profile, problem.cluster).step_ns == plan.predicted.step_ns
    without = found(make_problem([200, 200], num_workers=2, num_sequences=4, freeze=FreezeSpec()))
    assert without.best.predicted == plan.predicted


def test_side_work_that_takes_no_time_fits_into_one_bubble(make_problem):
    nothing = (
        SideWorkSpec(name="first", time_ns=0, after="forward"),
        SideWorkSpec(name="second", time_ns=0, after="first"),
    )
    problem = make_problem([200, 200], num_workers=2, num_sequences=2, side_work=nothing)
    (step,) = found(problem).best.cycle
    assert " ".join(map(str, step.workers[0])) == "0F0 0F1 0X:first0 0X:first1 0X:second 0B0 0B1"


def test_side_work_that_does_not_fit_is_refused_with_both_times(make_problem):
    long = (SideWorkSpec(name="long", time_ns=400),)
    problem = make_problem([200, 200], num_workers=2, num_sequences=2, side_work=long)
    with pytest.raises(PlanInfeasible) as caught:
        found(problem)
    assert str(caught.value) == (
        "side work does not fit into the bubbles\n"
        "  X:long of stage 0 takes 420 ns with 5 % of slack, the longest bubble of worker 0 is "
        "400 ns; cut the work into smaller parts, or take a schedule with longer bubbles\n"
        "  X:long of stage 1 takes 420 ns with 5 % of slack, the longest bubble of worker 1 is "
        "400 ns; cut the work into smaller parts, or take a schedule with longer bubbles"
    )


def test_a_comparison_says_how_often_side_work_is_done():
    # Two of `first` and one of `second` on each worker, which each need 1995 of the 2000 that F
    # takes. ZB-H1 leaves worker 1 only 2000, before its first forward: none of `first` is ready in
    # the first step, then follows one piece a step. GPipe and 1F1B leave 6000 in pieces of 2000 or
    # more: worker 0 of GPipe waits before its first backward, so that all is done in the second
    # step; the others begin in the first step and end in the second.
    world = EqualWorld(
        2,
        2,
        StageTimes(2000, 2000, 2000),
        side_work=(
            SideWorkSpec(name="first", time_ns=1900, after="backward"),
            SideWorkSpec(name="second", time_ns=1900, after="first"),
        ),
    )
    names = ("gpipe", "one_f_one_b", "zb_h1")
    compared = compare(world, chunks=(1,), schedules={name: SCHEDULES[name] for name in names})
    sides = {row.entry.name: row.num_side_steps for row in compared.compared}
    assert sides == {"zb_h1": 4, "gpipe": 2, "one_f_one_b": 2}
    text = comparison_text(compared, Measures(time=str, memory=str))
    heading, _, first, *_ = text.splitlines()
    assert heading.endswith("gradient sums       side work")
    assert first.endswith("every 4 steps")


def test_a_comparison_names_side_work_that_never_fits():
    long = (SideWorkSpec(name="long", time_ns=2000),)
    world = EqualWorld(2, 2, StageTimes(2000, 2000, 2000), side_work=long)
    compared = compare(world, chunks=(1,), schedules={"zb_h1": SCHEDULES["zb_h1"]})
    assert compared.compared[0].num_side_steps is None
    assert "does not fit" in comparison_text(compared, Measures(time=str, memory=str))
