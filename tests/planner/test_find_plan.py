"""Whole plans of tiny problems. Times are in nanoseconds; B = 2 F, I = W = F."""

from collections import Counter

import pytest

from evener.errors import PlanInfeasible, ProfileError, UsageError
from evener.ir.action import Kind
from evener.ir.schedule import Updates
from evener.planner.candidate import Candidate, Shape
from evener.planner.find_plan import PLANNERS, find_plan
from evener.planner.problem import Problem
from evener.planner.result import Status
from evener.schedules import SCHEDULES, ScheduleShape


def _solve(problem, planner="sweep", **options):
    return find_plan(
        problem.model, problem.cluster, problem.job, problem.profile, planner=planner, **options
    )


@pytest.fixture(params=sorted(PLANNERS))
def planner(request):
    return request.param


def test_one_worker_does_all_the_work(make_problem, planner):
    # 2 layers of 3 x 5 ns, 4 microbatches: 120 ns, and no plan can be faster
    result = _solve(make_problem([5, 5], num_workers=1, num_sequences=4), planner)
    assert (result.objective_ns, result.lower_bound_ns) == (120, 120)
    assert result.status is Status.OPTIMAL
    assert result.gap == 0


def test_bound_never_exceeds_the_objective(make_problem, planner):
    result = _solve(make_problem([3, 1, 4, 1, 5, 9], num_workers=3, num_sequences=4), planner)
    assert result.lower_bound_ns <= result.objective_ns
    assert result.best.predicted.step_ns == result.objective_ns
    assert result.best.predicted.lower_bound_ns == result.lower_bound_ns


def test_every_planner_lists_what_is_repeated(make_problem, planner):
    # 3 sequences do not divide by 2, so 2 workers are a pipeline; load: 3 x 20 x (3 + 1) / 2
    problem = make_problem([5, 5, 5, 5], num_workers=2, num_sequences=3, recompute="full")
    result = _solve(problem, planner)
    kinds = Counter(action.kind for _, action in result.best.schedule.actions())
    assert kinds[Kind.R] == kinds[Kind.B] + kinds[Kind.I] > 0
    assert 120 <= result.lower_bound_ns <= result.objective_ns


def test_uniform_is_one_f_one_b_with_equal_layers(make_problem):
    # 2 stages of 2 layers: F 2, B 4; 1F1B (m + p - 1)(F + B) = 5 x 6
    result = _solve(make_problem([1, 1, 1, 1], num_workers=2, num_sequences=4), "uniform")
    assert result.best.partition == ((0, 2), (2, 4))
    assert result.best.schedule.name == "one_f_one_b"
    assert result.objective_ns == 30


def test_sweep_gives_a_heavy_head_its_own_stage(make_problem):
    # data parallelism would win outright; 3 sequences do not divide by 2
    result = _solve(make_problem([1, 1, 1, 1, 4], num_workers=2, num_sequences=3))
    assert result.best.partition == ((0, 4), (4, 5))
    # load: 3 x 24 / 2 = 36; a worker that runs the head for all: 4 in front, 3 x (4 + 4), 4 back
    # = 32, or 4 + 36 = 40, but where two workers hold it one runs 2 of 3: 4 + 24 = 28
    assert result.lower_bound_ns == 36


def test_sweep_is_never_slower_than_uniform(make_problem):
    problem = make_problem([2, 7, 1, 8, 2, 8, 1, 8], num_workers=4, num_sequences=8)
    assert _solve(problem).objective_ns <= _solve(problem, "uniform").objective_ns


def test_sweep_chooses_data_parallelism_where_links_are_free(make_problem):
    # no bubble: 2 replicas of one worker with 2 microbatches each: 2 x 3 x 10
    result = _solve(make_problem([5, 5], num_workers=2, num_sequences=4))
    assert result.best.replicas == 2
    assert result.objective_ns == 60 == result.lower_bound_ns


def test_sweep_takes_the_larger_microbatch_where_it_costs_less(make_problem):
    # one worker; times grow with the size, so all sizes take 4 x 3 x 5: the tie goes to less memory
    problem = make_problem([5], num_workers=1, num_sequences=4, sizes=(1, 2), activation_bytes=10)
    result = _solve(problem)
    assert result.objective_ns == 60
    assert max(result.best.predicted.peak_bytes) == 20  # one in flight, as much for the backward


def test_memory_caps_refuse_what_does_not_fit(make_problem):
    # a layer keeps 100 bytes per microbatch and needs 100 for its backward; the cap is 150;
    # 1F1B comes nearest: two microbatches in flight on worker 0, one on worker 1
    problem = make_problem(
        [1, 1], num_workers=2, num_sequences=2, activation_bytes=100, memory_cap_bytes=150
    )
    with pytest.raises(PlanInfeasible) as caught:
        _solve(problem)
    assert str(caught.value) == (
        "no plan fits\n"
        "  worker 0 holds 300 B, its cap is 150 B: static 100 B + stage 0 activation 2 x 100 B at"
        " 0F1. Ways out: fewer microbatches in flight, recompute, or fewer layers on this worker\n"
        "  worker 1 holds 200 B, its cap is 150 B: static 100 B + stage 1 activation 1 x 100 B at"
        " 1F0. Ways out: fewer microbatches in flight, recompute, or fewer layers on this worker"
    )


def test_many_refused_shapes_are_told_in_few_lines(make_problem):
    # One sequence cannot be shared by replicas, so all 64 devices are one pipeline: every schedule
    # needs 64 layers for each stage that a worker has, 1 to 4: four reasons at most.
    problem = make_problem([1] * 2, num_workers=64, num_sequences=1)
    with pytest.raises(PlanInfeasible) as caught:
        _solve(problem)
    header, *lines = str(caught.value).splitlines()
    assert header == "no plan fits"
    assert lines[0].startswith("  gpipe, 1 x 64 workers, 1 stages each, 1 microbatches of 1, and ")
    assert lines[0].endswith(" more: needs 64 layers or more, the model has 2")
    assert len(lines) <= 4


def test_memory_caps_choose_the_schedule(make_problem):
    # 4 microbatches; GPipe holds 4 x 100 on every worker, 1F1B 2 and 1; 100 for the backward
    problem = make_problem(
        [1, 1], num_workers=2, num_sequences=4, activation_bytes=100, memory_cap_bytes=300
    )
    result = _solve(problem)
    assert max(result.best.predicted.peak_bytes) <= 300
    assert any(text.startswith("gpipe, 1 x 2 workers") for text in result.refused)


def test_same_problem_same_plan(make_problem):
    problem = make_problem([3, 1, 4, 1, 5, 9, 2, 6], num_workers=4, num_sequences=8)
    assert _solve(problem).best == _solve(problem).best


def test_stop_gives_the_best_so_far(make_problem):
    problem = make_problem([3, 1, 4, 1, 5, 9, 2, 6], num_workers=4, num_sequences=8)
    result = _solve(problem, stop=lambda best_ns: True)
    assert result.status is Status.STOPPED
    assert result.stats["simulated"] == 1


def test_a_limit_is_asked_for_before_and_between_plans_and_kept(make_problem, monkeypatch):
    problem = make_problem([3, 1, 4, 1, 5, 9, 2, 6], num_workers=4, num_sequences=8)
    events, evaluate = [], Candidate.evaluate

    def counted(candidate, partition):
        events.append("plan")
        return evaluate(candidate, partition)

    def stop(best_ns):
        events.append("ask")
        return events.count("ask") > 6

    monkeypatch.setattr(Candidate, "evaluate", counted)
    assert _solve(problem, stop=stop).status is Status.STOPPED
    # The clock starts with the first question. Every plan follows one, until it says stop.
    assert events[:12] == ["ask", *["ask", "plan"] * 5, "ask"]
    assert events.count("plan") == 5


def test_progress_counts_to_its_end(make_problem):
    told = []
    _solve(
        make_problem([1, 1], num_workers=2, num_sequences=2),
        progress=lambda *news: told.append(news),
    )
    done, total, best_ns = told[-1]
    assert done == total
    assert best_ns is not None


def test_unknown_planner(make_problem):
    with pytest.raises(UsageError) as caught:
        _solve(make_problem([1], num_workers=1, num_sequences=1), "magic")
    assert str(caught.value) == f'there is no planner "magic"; planners: {", ".join(PLANNERS)}'


def test_uniform_needs_a_layer_per_worker(make_problem):
    with pytest.raises(PlanInfeasible) as caught:
        _solve(make_problem([1], num_workers=2, num_sequences=2), "uniform")
    assert str(caught.value) == (
        "uniform 1F1B is impossible\n"
        "  the cluster has 2 devices, but the model has 1 layers, and every worker needs one; use"
        " fewer devices or the planner joint"
    )


def test_no_measured_size_fits(make_problem):
    with pytest.raises(PlanInfeasible) as caught:
        make_problem([1], num_workers=1, num_sequences=3, sizes=(2,))
    assert str(caught.value) == (
        "no microbatch size can be planned\n"
        "  the profile has microbatch sizes [2] at sequence length 4; the job asks for"
        " microbatch_size = auto and a global batch of 3 sequences, which the size must divide;"
        " measure another size or change the job"
    )


def test_profile_of_another_model(make_problem):
    one = make_problem([1], num_workers=1, num_sequences=1)
    two = make_problem([1, 1], num_workers=1, num_sequences=1)
    with pytest.raises(ProfileError, match='the profile is of model "tiny"'):
        Problem(one.model, one.cluster, one.job, two.profile)


def test_bound_leaves_out_what_cannot_fit(make_problem):
    # Chimera halves the heavy head's microbatches, but holds the model twice: 2 x (5 layers of
    # 4 B) x 4 (parameters, gradients, two moments) = 160 B do not fit into 2 x 79 B.
    # One worker per layer: 4 in front + 3 x 12 of the head = 40; with two heads 4 + 2 x 12 = 28,
    # but then the load decides: 3 x 24 / 2 = 36.
    layers = {"num_workers": 2, "num_sequences": 3, "parameter_bytes": 4}
    roomy = _solve(make_problem([1, 1, 1, 1, 4], **layers, memory_cap_bytes=160))
    tight = _solve(make_problem([1, 1, 1, 1, 4], **layers, memory_cap_bytes=79))
    assert (roomy.lower_bound_ns, tight.lower_bound_ns) == (36, 40)


def test_asynchronous_schedules_are_planned_where_the_job_asks_for_them(make_problem):
    # 3 sequences on 2 workers: 1F1B without a flush takes (3 x 10 + 1) x 6 for 10 updates.
    sizes = {"num_workers": 2, "num_sequences": 3}
    result = _solve(make_problem([2, 2], **sizes, asynchronous=True))
    assert result.best.schedule.name == "pipedream_2bw"
    assert result.best.schedule.updates == Updates(10, 1, stashed=True)
    assert result.objective_ns == result.best.predicted.step_ns == 19  # 186 / 10, rounded up
    assert result.lower_bound_ns == 18  # load: 3 x 12 / 2
    ordinary = _solve(make_problem([2, 2], **sizes))
    assert ordinary.best.schedule.updates == Updates()
    assert ordinary.objective_ns > result.objective_ns


@pytest.mark.parametrize(
    ("num_sequences", "num_updates", "text"),
    [
        # 20,000 / (2 stages x 4 microbatches) = 2500
        (
            4,
            2501,
            (
                "2501 updates between two flushes times 4 microbatches times 2 stages is more "
                "than 20,000 forwards for each schedule; give the job 2500 updates_per_flush at "
                "most"
            ),
        ),
        (
            20_000,
            10,
            (
                "10 updates between two flushes times 20000 microbatches times 2 stages is more "
                "than 20,000 forwards for each schedule; give the job asynchronous = false"
            ),
        ),
    ],
)
def test_too_many_updates_between_two_flushes(make_problem, num_sequences, num_updates, text):
    sizes = {"num_workers": 3, "num_sequences": num_sequences, "steps": num_updates}
    asks = {"asynchronous": True, "updates_per_flush": num_updates}
    with pytest.raises(UsageError) as caught:
        make_problem([2, 2], **sizes, **asks)
    assert str(caught.value) == text
    assert make_problem([2, 2], **sizes, **asks | {"updates_per_flush": 1}).job.asynchronous


def test_optimizer_states_are_counted_once_where_updates_do_not_wait(make_problem):
    # AMDP holds every stage on both workers: parameters and gradients twice, states once.
    problem = make_problem(
        [2, 2], num_workers=2, num_sequences=4, parameter_bytes=100, asynchronous=True
    )
    shape = Shape(SCHEDULES["amdp_2"], ScheduleShape(2, 4, num_updates=3), 1, replicas=1)
    found = Candidate(problem, shape).evaluate(((0, 1), (1, 2)))
    assert found.outcome.peak_bytes == (2 * 400, 2 * 200)
    assert found.step_ns == -(-found.outcome.step_ns // 3)
