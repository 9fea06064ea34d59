"""What several targets cannot express, each with the way out."""

from collections.abc import Iterator

from evener.export.exporter import Reason
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule


def data_parallel_stages(system: str, schedule: Schedule) -> Iterator[Reason]:
    """Stages on several workers of one pipeline: data parallelism of unequal widths."""
    for stage, workers in enumerate(schedule.workers_of_stage):
        if len(workers) > 1:
            yield Reason(
                f"stage {stage} is on workers {', '.join(map(str, workers))}: {system} holds every "
                "stage on one rank; plan it with one worker per stage"
            )


def slices_and_graphs(system: str, schedule: Schedule) -> Iterator[Reason]:
    """Microbatches cut into slices, and stages that are not a chain."""
    if schedule.num_slices > 1:
        yield Reason(
            f"{schedule.num_slices} token slices per microbatch: the file has no index for them; "
            "plan with one slice"
        )
    chain = {(stage, stage + 1) for stage in range(schedule.num_stages - 1)}
    for producer, consumer in sorted(set(schedule.stage_edges) ^ chain):
        yield Reason(
            f"the stages are not a chain, see {producer} to {consumer}: {system} passes tensors "
            "from each stage to the next only"
        )


def several_devices(system: str, plan: Plan) -> Iterator[Reason]:
    """Workers that are more than one device."""
    for worker, devices in enumerate(plan.devices):
        if len(devices) > 1:
            yield Reason(
                f"worker {worker} is {len(devices)} devices: a rank of {system} is one; plan with "
                "one device per worker"
            )


def freezing(system: str, plan: Plan) -> Iterator[Reason]:
    """Parameters that microbatches leave out."""
    if plan.freezing is not None:
        yield Reason(
            f"the plan freezes parameters of some microbatches: {system} has no word for it; plan "
            "a job without freeze"
        )


def spread_head(system: str, plan: Plan) -> Iterator[Reason]:
    """A head in parts."""
    if plan.job.spread_head:
        yield Reason(
            f"the head's rows are spread over workers: {system} has every layer in one stage; plan "
            "a job without spread_head"
        )


def side_work(system: str, plan: Plan) -> Iterator[Reason]:
    """What the plan does in its bubbles."""
    if plan.cycle:
        yield Reason(
            f"the plan has side work in its bubbles: {system} has no word for it; plan a job "
            "without side_work"
        )


def updates(system: str, plan: Plan) -> Iterator[Reason]:
    """Updates that do not wait for one another."""
    number = plan.schedule.updates.number
    if number > 1:
        yield Reason(
            f"{number} updates without a flush between them: {system} makes one update per step; "
            "plan a job without asynchronous"
        )


def unequal_workers(system: str, schedule: Schedule) -> Iterator[Reason]:
    """Workers that hold different numbers of stages."""
    counts = [len(stages) for stages in schedule.stages_of_worker]
    for worker, count in enumerate(counts):
        if count != counts[0]:
            yield Reason(
                f"worker 0 holds {counts[0]} stages and worker {worker} holds {count}: {system} "
                "gives every rank the same number; plan with equal numbers"
            )
            return


def rank_lines(plan: Plan) -> list[str]:
    """``rank 0: node0/0`` and so on, ranks numbered as (pipeline rank, replica).

    That is how Megatron-LM (order tp-cp-ep-dp-pp) and torchtitan (mesh pp, dp_replicate) number
    them, while a plan lists its workers replica by replica.
    """
    num_workers = plan.schedule.num_workers
    return [
        f"rank {worker * plan.replicas + replica}: "
        f"{', '.join(plan.devices[replica * num_workers + worker])}"
        for worker in range(num_workers)
        for replica in range(plan.replicas)
    ]
