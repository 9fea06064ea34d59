"""Training under every schedule gives the numbers of a single process, in real processes."""

from collections.abc import Iterator
from itertools import count, islice
from random import Random

import pytest

from evener.executor.parity_grid import all_cases, covering_cases
from evener.executor.train import Trainer
from evener.executor.verify import Case, Parity, verify, verify_cases
from evener.ir.freezing import WHOLE_PPM, Freezing
from evener.ir.plan import Plan
from evener.modules.keyed_rng import KeyedGenerators
from evener.schedules import SCHEDULES, ScheduleShape, one_f_one_b
from evener.spec.job import JobSpec
from evener.testing.random_schedules import Limits, random_schedule

pytestmark = pytest.mark.dist


def assert_all_hold(parities: Iterator[Parity], num_cases: int) -> None:
    found = list(parities)
    assert len(found) == num_cases
    assert [parity for parity in found if not parity.holds] == []


@pytest.mark.timeout(180)
def test_a_covering_part_of_the_grid() -> None:
    cases = list(covering_cases())
    assert_all_hold(verify_cases(cases), len(cases))


def random_cases(num_cases: int) -> list[Case]:
    """Chains of stages, some with slices: what the executor runs."""
    drawn = (random_schedule(Random(seed), Limits(num_slices=4)) for seed in count())
    chains = (schedule for schedule in drawn if schedule.edges is None)
    return [Case(schedule) for schedule in islice(chains, num_cases)]


@pytest.mark.timeout(120)
def test_random_schedules() -> None:
    assert_all_hold(verify_cases(random_cases(20)), 20)


def frozen_cases() -> Iterator[Case]:
    """Random shares, none and all of them likely; of one worker and of two, in all ways to split."""
    shapes = [
        ("one_f_one_b", ScheduleShape(1, 3), None),
        ("one_f_one_b", ScheduleShape(2, 4), None),
        ("zb_h1", ScheduleShape(2, 4), "store"),
        ("zb_h1", ScheduleShape(2, 4), "graph"),
        ("zb_v", ScheduleShape(2, 4, 2), None),
        ("chimera", ScheduleShape(2, 4), None),
    ]
    for seed, (name, shape, split) in enumerate(shapes):
        random, schedule = Random(seed), SCHEDULES[name](shape)
        shares = (0, 200_000, 500_000, 800_000, WHOLE_PPM)
        rows = (
            tuple(random.choice(shares) for _ in range(shape.num_microbatches))
            for _ in range(shape.num_stages)
        )
        yield Case(schedule, split=split, freezing=Freezing(tuple(rows)))  # type: ignore[arg-type]
    everything = Freezing.uniform(schedule, WHOLE_PPM)
    yield Case(schedule, freezing=everything)


@pytest.mark.timeout(120)
def test_frozen_parameters_are_left_out_and_nothing_else_changes() -> None:
    cases = list(frozen_cases())
    assert_all_hold(verify_cases(cases), len(cases))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_grid() -> None:
    cases = [*all_cases(), *random_cases(100)]
    assert_all_hold(verify_cases(cases), len(cases))


def test_a_plan_is_verified_with_its_own_optimizer_and_clipping() -> None:
    schedule = one_f_one_b(ScheduleShape(2, 3))
    plan = Plan(
        model="mine",
        model_fingerprint="any",
        layer_names=("a", "b", "c"),
        partition=((0, 1), (1, 3)),
        devices=(("cpu:0",), ("cpu:1",), ("cpu:2",), ("cpu:3",)),
        replicas=2,
        microbatch_size=1,
        sequence_length=4,
        job=JobSpec(global_batch_sequences=6, sequence_length=4, clip_norm=0.5),
        schedule=schedule,
    )
    parity = verify(plan)
    assert parity.holds
    assert parity.case == (
        "mine under one_f_one_b, 2 stages, 6 microbatches, 4 workers, dropout, clipped, ragged"
    )


def spoil_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = KeyedGenerators.seed
    monkeypatch.setattr(KeyedGenerators, "seed", lambda self, value: seed(self, value ^ 1))


def spoil_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 loses a hundred-millionth of one gradient."""
    init = Trainer.__init__

    def spoiled(self: Trainer, *arguments: object, **named: object) -> None:
        init(self, *arguments, **named)  # type: ignore[arg-type]
        run = self.engine._update

        def update(stage: int) -> None:
            if self.transport.worker == 1:
                for parameter in self.model.stepped[stage].values():
                    parameter.grad.view(-1)[0] += 1e-8
            run(stage)

        self.engine._update = update  # type: ignore[method-assign]

    monkeypatch.setattr(Trainer, "__init__", spoiled)


@pytest.mark.parametrize("spoil", [spoil_dropout, spoil_one_rank])
def test_it_notices_what_is_wrong(spoil: object, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(one_f_one_b(ScheduleShape(2, 3)))
    (good,) = verify_cases([case])
    spoil(monkeypatch)  # type: ignore[operator]
    (bad,) = verify_cases([case])
    assert good.holds
    assert not bad.holds
    assert bad.parameter > 1e-12
