"""Plans around a schedule: one layer a stage, one device a worker, one sequence a microbatch."""

from collections.abc import Callable

import pytest

from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.spec.job import JobSpec

MakePlan = Callable[..., Plan]


@pytest.fixture
def make_plan() -> MakePlan:
    def make(
        schedule: Schedule, *, replicas: int = 1, tied: tuple[tuple[int, int], ...] = ()
    ) -> Plan:
        num_workers = schedule.num_workers * replicas
        return Plan(
            model="tiny",
            model_fingerprint="0" * 64,
            layer_names=tuple(f"layer{stage}" for stage in range(schedule.num_stages)),
            partition=tuple((stage, stage + 1) for stage in range(schedule.num_stages)),
            devices=tuple((f"node0/{worker}",) for worker in range(num_workers)),
            replicas=replicas,
            microbatch_size=1,
            sequence_length=8,
            job=JobSpec(
                global_batch_sequences=schedule.num_microbatches * replicas,
                sequence_length=8,
                microbatch_size=1,
            ),
            tied=tied,
            schedule=schedule,
        )

    return make
